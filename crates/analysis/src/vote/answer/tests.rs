use proptest::prelude::*;

use super::*;

fn extract(how: &str, text: &str) -> Option<String> {
    how.parse::<Extract>().unwrap().answer(text)
}

#[test]
fn the_last_box_wins_and_braces_nest() {
    assert_eq!(extract("boxed", r"so \boxed{1}, no: $\boxed{\frac{1}{2}}$."), Some(r"\frac{1}{2}".into()));
    assert_eq!(extract("boxed", r"\boxed{7} and a torn \boxed{8"), Some("7".into()));
    assert_eq!(extract("boxed", "none"), None);
}

#[test]
fn answer_lines() {
    assert_eq!(extract("line", "steps\nA: 18"), Some("18".into()));
    assert_eq!(extract("line", "Answer: 3\nwait\n**Final Answer:** 42 \n"), Some("42".into()));
    assert_eq!(extract("line", "Therefore, the answer is 69."), Some("69.".into()));
    assert_eq!(extract("auto", "the answer is 3, boxed: \\boxed{4}"), Some("4".into()));
    assert_eq!(extract("auto", "I do not know"), None);
}

#[test]
fn json_pointer_regex_and_whole() {
    let text = "thinking {not json} ```json\n{\"answer\": {\"value\": 12.50}}\n``` done";
    assert_eq!(extract("json:/answer/value", text), Some("12.5".into()));
    assert_eq!(extract("json:/missing", text), None);
    assert_eq!(extract(r"regex:id=(\d+)", "id=1 id=22"), Some("22".into()));
    assert_eq!(extract(r"regex:\d+", "1 2"), Some("2".into()));
    assert_eq!(extract("whole", " text "), Some("text".into()));
    assert!("regex:(".parse::<Extract>().is_err());
    assert!("nonsense".parse::<Extract>().is_err());
}

#[test]
fn equal_answers_have_equal_keys() {
    for same in [
        &[
            "18",
            "$18",
            "18.0",
            "18.",
            " 18 ",
            "+18",
            "1.8e1",
            "$18.00",
            "**18**",
            r"\$18",
            "\"18\"",
            "18 dollars",
            r"\text{18}",
            "$18$",
        ] as &[&str],
        &["1,234,567", "1234567", "1{,}234{,}567"],
        &["0.5", ".5", "1/2", r"\frac{1}{2}", r"\dfrac12", "50/100", r"$\frac{1}{2}$."],
        &["-0", "0", "0.000", "0/7"],
        &["1/3", "2/6", r"\frac{2}{6}"],
        &["-15", "−15", "-15.0"],
        &["90", r"90^\circ", "90°", "90 degrees", r"90^{\circ}"],
        &["5 cm", "5cm", "5.0 cm", r"5\text{ cm}"],
        &["3 hours", "3 hour"],
        &["(3, 4)", "(3,4)", r"\left(3, 4\right)"],
        &["Yes", "yes", "YES."],
        &[r"\sqrt{2}", r"\sqrt2", "sqrt(2)"],
        &["6 + 9i", "6+9i"],
    ] {
        let first = key(same[0]);
        assert!(first.is_some());
        for other in same {
            assert_eq!(key(other), first, "{other}");
        }
    }
}

#[test]
fn different_answers_stay_different() {
    for (a, b) in [
        ("18", "81"),
        ("5 cm", "5 m"),
        ("''", "'   '"),
        ("'UppEr'", "'upper'"),
        ("1/3", "0.333"),
        ("[(4, 1)]", "[[4, 1]]"),
        ("10", "1"),
        ("-5", "5"),
        ("1e3", "1e4"),
        ("1,23", "123"),
        ("a b", "ab"),
    ] {
        assert_ne!(key(a), key(b), "{a} {b}");
    }
    assert_eq!(key("  "), None);
    assert_eq!(key("$$"), None);
}

#[test]
fn a_bare_number_joins_the_one_unit_named() {
    let same = keys(&[Some("5"), Some("5 cm"), None, Some("5.0")]);
    assert_eq!(same[0], same[1]);
    assert_eq!(same[0], same[3]);
    assert_eq!(same[2], None);
    let apart = keys(&[Some("5"), Some("5 cm"), Some("5 m")]);
    assert_ne!(apart[0], apart[1]);
    assert_ne!(apart[1], apart[2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// No text makes extraction or normalising panic.
    #[test]
    fn any_text_is_safe(text in r"[\\a-z{}$ 0-9.,/'()*:é\n-]{0,60}") {
        for how in ["auto", "boxed", "line", "json:/a", "whole"] {
            if let Some(answer) = extract(how, &text) {
                let _ = key(&answer);
            }
        }
    }

    /// A number keeps its key through trailing zeros, separators and signs.
    #[test]
    fn numbers_are_canonical(whole in 0_u32..5_000_000, part in 0_u32..1_000) {
        let plain = format!("{whole}.{part:03}");
        prop_assert_eq!(key(&plain), key(&format!("+{plain}00")));
        prop_assert_eq!(key(&plain), key(&format!("${plain}")));
        prop_assert_eq!(key(&plain), key(&format!("{}/1000", u64::from(whole) * 1_000 + u64::from(part))));
    }
}
