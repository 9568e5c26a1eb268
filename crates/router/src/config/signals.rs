//! `[signals]`.

use sseismo_trace::SignatureId;

use super::section::Section;
use super::server::durations;
use crate::steer::{Effect, FLOOR, Reaction, Settings};

/// Signatures that the live detector signals.
const LIVE: [SignatureId; 6] = [
    SignatureId::CountLattice,
    SignatureId::Burst,
    SignatureId::SizeWindow,
    SignatureId::Concurrency,
    SignatureId::Saturation,
    SignatureId::RetryAmplification,
];

/// Reads what is done about signals.
pub(super) fn signals(section: Option<Section<'_>>) -> Settings {
    let mut settings = Settings::default();
    let Some(section) = section else { return settings };
    settings.act = section.flag("act").unwrap_or(settings.act);
    settings.floor = section.share("floor").unwrap_or(settings.floor);
    settings.changes = section.size("changes", 1..=1_000).unwrap_or(settings.changes);
    durations(
        &section,
        [
            ("dwell", &mut settings.dwell),
            ("calm", &mut settings.calm),
            ("window", &mut settings.window),
            ("harm_recent", &mut settings.harm.recent),
        ],
    );
    for (key, into) in [
        ("harm_wait_ratio", &mut settings.harm.wait_ratio),
        ("harm_wait_quartile", &mut settings.harm.wait_quartile),
    ] {
        *into = section.amount(key).unwrap_or(*into);
        if *into <= 1.0 {
            section.fault(key, &format!("`{key}` must be larger than 1: that is the ordinary wait"));
        }
    }
    settings.harm.error_share = section.share("harm_error_share").unwrap_or(settings.harm.error_share);
    if settings.floor < FLOOR {
        section.fault("floor", "`floor` must be at least 0.05: recovery would not be seen");
    }
    for signature in LIVE {
        if let Some(own) = section.section(signature.name()) {
            reaction(&own, settings.reaction_mut(signature));
            own.end();
        }
    }
    section.end();
    settings
}

fn reaction(section: &Section<'_>, reaction: &mut Reaction) {
    let names = Effect::ALL.map(Effect::name);
    if let Some(name) = section.word("effect", &names) {
        let named = Effect::ALL.into_iter().find(|effect| effect.name() == name);
        reaction.effect = named.unwrap_or(reaction.effect);
    }
    reaction.limit = section.whole("limit", 1..=1_000_000).unwrap_or(reaction.limit);
    if section.has("limit") && reaction.effect != Effect::LimitConcurrency {
        section.fault("limit", "`limit` needs `effect = \"limit-concurrency\"`");
    }
}
