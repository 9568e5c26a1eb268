//! Real programs that the tests run against. A missing one is installed from its registry where that is
//! allowed; otherwise the test is skipped loudly, and in CI a skip is a failure.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use crate::root;

/// A program of somebody else.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// From a Debian package: (program, package).
    Debian(&'static str, &'static str),
    /// A Python environment with these pip requirements, under a name of its own.
    Python(&'static str, &'static [&'static str]),
    /// A Node folder with these npm packages, under a name of its own.
    Node(&'static str, &'static [&'static str]),
}

/// One installation at a time: apt, pip and npm lock or trip over each other.
static INSTALLING: Mutex<()> = Mutex::new(());

/// Where to find `peer`: the program itself, the environment's `python`, or the folder that holds
/// `node_modules`. `None` means: skip this test (already told).
///
/// # Panics
/// In CI, when the peer cannot be had.
pub fn needs(peer: Peer) -> Option<PathBuf> {
    let _one = INSTALLING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let found = match peer {
        Peer::Debian(program, package) => debian(program, package),
        Peer::Python(name, requirements) => python(name, requirements),
        Peer::Node(name, packages) => node(name, packages),
    };
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{peer:?} cannot be installed, and CI allows no skips");
        // Straight to the process's stderr: the test harness would swallow a print.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {peer:?} is not here and cannot be installed");
    }
    found
}

fn debian(program: &str, package: &str) -> Option<PathBuf> {
    let look = || {
        ["/usr/sbin", "/usr/bin", "/usr/local/bin"]
            .iter()
            .map(|folder| PathBuf::from(folder).join(program))
            .find(|path| path.exists())
    };
    look().or_else(|| {
        let apt = |args: &[&str]| {
            Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output().ok()
        };
        let install = ["install", "-y", "--no-install-recommends", package];
        if !apt(&install)?.status.success() {
            apt(&["update"])?;
            apt(&install)?;
        }
        look()
    })
}

fn python(name: &str, requirements: &[&str]) -> Option<PathBuf> {
    let home = root().join("target/peers").join(name);
    let python = home.join("bin/python");
    let done = home.join("installed");
    if !done.exists() {
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(requirements))?;
        std::fs::write(&done, "").ok()?;
    }
    Some(python)
}

fn node(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let home = root().join("target/peers").join(name);
    let done = home.join("installed");
    if !done.exists() {
        std::fs::create_dir_all(&home).ok()?;
        succeeds(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--silent"])
                .arg("--prefix")
                .arg(&home)
                .args(packages),
        )?;
        std::fs::write(&done, "").ok()?;
    }
    Some(home)
}

fn succeeds(command: &mut Command) -> Option<()> {
    command.output().ok()?.status.success().then_some(())
}
