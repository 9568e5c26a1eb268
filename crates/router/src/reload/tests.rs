use std::path::Path;

use super::*;
use crate::breaker::State;
use crate::choice::Ask;
use crate::outcome::FailureKind;

const GOOD: &str = "[[upstream]]\nname = \"a\"\nurl = \"http://a.example/v1\"\napis = [\"chat\"]\nkeys = [\"file:key\"]\n\
    [[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";

fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.toml");
    std::fs::write(folder.path().join("key"), "old").unwrap();
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn key(live: &Live, now: Instant) -> String {
    let ask = Ask { model: "m", ..Ask::default() };
    let attempt = live.router().candidates(&ask, now).unwrap().next(now).unwrap();
    attempt.key.as_ref().unwrap().secret.expose().to_owned()
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[test]
fn a_bad_file_keeps_the_old_router_and_says_why() {
    let (_folder, path) = folder(GOOD);
    let now = Instant::now();
    let live = Live::start(&path, 1, now).unwrap();
    let before = live.router();
    replace(&path, &GOOD.replace("http://a.example/v1", "http://a.example"));
    let error = live.reload(false, now).unwrap_err();
    let Unusable::Faulty { faults, .. } = &error else { panic!("{error}") };
    assert_eq!(faults[0].line, 3);
    assert!(error.to_string().contains("1 fault"), "{error}");
    assert!(Arc::ptr_eq(&before, &live.router()));
    assert_eq!(live.reload(false, now).unwrap(), Change::Same, "told once");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(live.reload(false, now), Err(Unusable::Unreadable { .. })));
    // A pipe that nobody writes to is not waited for.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(live.reload(false, now), Err(Unusable::Unreadable { .. })));
    replace(&path, GOOD);
    assert_eq!(live.reload(false, now).unwrap(), Change::New { restart: false });
}

#[test]
fn a_log_beside_the_configuration_is_no_change_of_it() {
    use notify::event::{CreateKind, DataChange, RenameMode};
    let names = BTreeSet::from([OsString::from("relay.toml")]);
    let seen = |kind, file: &str| {
        concerns(&notify::Event::new(kind).add_path(Path::new("/etc/relay").join(file)), &names)
    };
    let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    assert!(seen(written, "relay.toml"));
    assert!(!seen(written, "access.log"));
    // Orchestrators put a new folder in place of the one that links point to.
    assert!(seen(EventKind::Modify(ModifyKind::Name(RenameMode::To)), "..data"));
    assert!(seen(EventKind::Create(CreateKind::File), "relay.toml.new"));
}

#[test]
fn breakers_are_kept_and_keys_are_read_again() {
    let (folder, path) = folder(GOOD);
    let now = Instant::now();
    let live = Live::start(&path, 1, now).unwrap();
    let ask = Ask { model: "m", ..Ask::default() };
    for _ in 0..3 {
        let attempt = live.router().candidates(&ask, now).unwrap().next(now).unwrap();
        attempt.end(FailureKind::Connect.into(), now);
    }
    assert_eq!(live.reload(false, now).unwrap(), Change::Same);
    std::fs::write(folder.path().join("key"), "new").unwrap();
    assert_eq!(live.reload(false, now).unwrap(), Change::New { restart: false });
    assert_eq!(key(&live, now), "new");
    assert!(matches!(live.router().breakers(now)[0].state, State::Open(_)));
    replace(&path, &format!("{GOOD}[server]\nlisten = \"127.0.0.1:1\"\n"));
    assert_eq!(live.reload(false, now).unwrap(), Change::New { restart: true });
    assert_eq!(live.reload(true, now).unwrap(), Change::New { restart: true });
}

#[test]
fn known_issuers_outlive_a_restart() {
    let text = format!("{GOOD}[affinity]\nfile = \"issuers\"\n");
    let (folder, path) = folder(&text);
    let now = Instant::now();
    let live = Live::start(&path, 1, now).unwrap();
    let references = ["gAAA".to_owned()];
    let router = live.router();
    router.issued(&router.state_keys(&references), &router.config().upstreams[0]);
    drop((live, router));
    let mode =
        std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(folder.path().join("issuers")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    // The organisation has gone from the file since: its state can be taken by nobody.
    std::fs::write(&path, text.replace("name = \"a\"", "name = \"a\"\norganisation = \"other\"")).unwrap();
    let router = Live::start(&path, 1, now).unwrap().router();
    let state = router.state_keys(&references);
    let ask = Ask { model: "m", state: &state, ..Ask::default() };
    assert_eq!(router.candidates(&ask, now).unwrap_err().name(), "state-bound");
}

#[tokio::test]
async fn a_replaced_file_and_a_changed_key_are_noticed() {
    let (folder, path) = folder(GOOD);
    let live = Arc::new(Live::start(&path, 1, Instant::now()).unwrap());
    let following = tokio::spawn(follow(live.clone()));
    // The watch begins some time after the task: change again until it is seen.
    let noticed = async |change: &dyn Fn(u32)| {
        let before = live.router();
        for step in 0..200 {
            if step % 20 == 0 {
                change(step);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            if !Arc::ptr_eq(&before, &live.router()) {
                return true; // within 6 s: not by the look every ten seconds
            }
        }
        false
    };
    assert!(noticed(&|round| replace(&path, &format!("{GOOD}# {round}\n"))).await);
    assert!(
        noticed(&|round| std::fs::write(folder.path().join("key"), format!("key-{round}")).unwrap()).await
    );
    assert!(key(&live, Instant::now()).starts_with("key-"));
    following.abort();
}

#[cfg(feature = "sinks")]
#[test]
fn a_changed_sink_takes_a_restart() {
    let sink = |port: u16| {
        format!("{GOOD}[[sink]]\nname = \"s\"\nkind = \"redis\"\nurl = \"redis://127.0.0.1:{port}/0\"\n")
    };
    let (_folder, path) = folder(&sink(1));
    let now = Instant::now();
    let live = Live::start(&path, 1, now).unwrap();
    replace(&path, &format!("# a word\n{}", sink(1)));
    assert_eq!(live.reload(false, now).unwrap(), Change::New { restart: false });
    replace(&path, &sink(2));
    assert_eq!(live.reload(false, now).unwrap(), Change::New { restart: true });
}
