use clap::Parser as _;

use super::*;

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    live: Args,
}

fn plan(flags: &str) -> Result<Plan, String> {
    let flags = ["vote", "--prompt-file", "p"].into_iter().chain(flags.split_whitespace());
    let flags = Flags::try_parse_from(flags).map_err(|error| error.to_string())?;
    Plan::new(&flags.live, "What is 6 times 7?").map_err(|error| format!("{error:#}"))
}

fn error(flags: &str) -> String {
    plan(flags).err().unwrap()
}

#[test]
fn models_temperatures_and_efforts_are_taken_in_turn() {
    let plan = plan("--base-url http://a/v1/ --model x,y --n 5 --temperature 0.2,0.8,1.0 --effort low,high")
        .unwrap();
    let bodies: Vec<_> = plan.branches.iter().map(|branch| branch.request().body).collect();
    let column = |field: &str| bodies.iter().map(|b| b[field].to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(column("model"), r#""x" "y" "x" "y" "x""#);
    assert_eq!(column("temperature"), "0.2 0.8 1.0 0.2 0.8");
    assert_eq!(column("reasoning_effort"), r#""low" "high" "low" "high" "low""#);
    assert_eq!(plan.branches[0].request().url, "http://a/v1/chat/completions");
    assert_eq!(plan.quorum, 3);
    assert!(bodies[0].get("max_completion_tokens").is_none());
}

#[test]
fn flags_that_do_not_fit_are_named() {
    assert!(error("--base-url http://a,http://b --model x,y,z").contains("--base-url was given 2 times"));
    assert!(error("--base-url http://a --model x --n 4 --quorum 5").contains("--quorum 5"));
    assert!(error("--base-url http://a --model x --max-tokens 100").contains("budget"));
    assert!(error("--base-url http://a --model x --max-usd 1").contains("--price"));
    assert!(error("--base-url http://a --model x --stop beta:2").contains("between 0.5 and 1"));
    assert!(
        error("--base-url http://a --model x --key-env SSEISMO_NO_SUCH_KEY").contains("SSEISMO_NO_SUCH_KEY")
    );
    assert!(error("--model x").contains("--base-url"));
}

#[test]
fn a_budget_caps_every_branch() {
    let plan = plan("--base-url http://a --model x --n 4 --max-tokens 1000 --cap-field max_tokens").unwrap();
    // A quarter of 1,000 less the prompt's reserve of 9 + 32.
    assert_eq!(plan.branches[3].request().body["max_tokens"], 209);
}

#[test]
fn inline_thinking_is_reasoning() {
    let mut branch = plan("--base-url http://a --model x").unwrap().branches[0].start();
    branch.text = "<think>six sevens</think>\nAnswer: 42".to_owned();
    branch.split_thinking();
    assert_eq!((branch.reasoning.as_str(), branch.text.trim()), ("six sevens", "Answer: 42"));
}
