//! Every verb explains itself with examples that can be pasted.

use std::process::Command;

#[test]
fn each_verb_shows_examples_in_its_help() {
    let help = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_sseismo")).args(args).output().expect("the binary starts");
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).expect("help is UTF-8")
    };
    let overview = help(&["--help"]);
    let verbs: Vec<&str> = overview
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.contains(&"analyze"), "{overview}");
    for verb in verbs {
        let text = help(&[verb, "--help"]);
        assert!(text.contains(&format!("sseismo {verb} ")), "`{verb} --help` has no example:\n{text}");
    }
}
