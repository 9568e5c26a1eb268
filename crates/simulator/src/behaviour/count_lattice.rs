//! Reasoning stops at step·n + offset: 516, 1034, 1552 … are 518n − 2. Answers of low tiers can be wrong,
//! as in the candy study (516: 0 of 129 right; elsewhere 65 of 71).

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Answer, Plan};
use crate::unit::Share;

/// `kind = "count-lattice"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CountLattice {
    /// From one lattice value to the next.
    step: u32,
    /// The smallest positive value on the lattice.
    offset: u32,
    /// Share of requests that stop on it.
    mass: Share,
    /// Chance that a stop is at the tier it has reached rather than later.
    stop: Share,
    /// Share of wrong answers of tier 1, 2, …; the last one holds for all further tiers.
    wrong: Vec<Share>,
    /// Share of wrong answers off the lattice.
    wrong_elsewhere: Share,
}

impl Default for CountLattice {
    fn default() -> Self {
        Self {
            step: 518,
            offset: 516,
            mass: Share(0.5),
            stop: Share(0.4),
            wrong: vec![Share(1.0), Share(0.3), Share(0.08)],
            wrong_elsewhere: Share(0.08),
        }
    }
}

impl Behaviour for CountLattice {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.offset == 0 || self.offset > self.step {
            return Err(("offset", format!("must be from 1 to the step, {}", self.step)));
        }
        Ok(())
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let on = draw.chance(self.mass.0);
        let tier = draw.geometric(self.stop.0, 20);
        let wrong = if on {
            plan.reasoning = u64::from(self.offset) + u64::from(self.step) * u64::from(tier - 1);
            self.wrong.get(tier as usize - 1).or(self.wrong.last()).copied().unwrap_or_default()
        } else {
            self.wrong_elsewhere
        };
        let wrong = draw.chance(wrong.0);
        if wrong {
            plan.answer = Answer::Wrong;
        }
        on.then(|| json!({ "tier": tier, "reasoning_tokens": plan.reasoning, "wrong": wrong }))
    }
}
