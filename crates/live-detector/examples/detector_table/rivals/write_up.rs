//! The rule of the production write-ups, to the letter: 40–80 tokens after more than a second, three times in
//! a minute.

use super::Rival;
use super::gap_count::Recent;
use crate::traffic::Seen;

/// The detector.
#[derive(Default)]
pub(crate) struct WriteUp(Recent);

impl Rival for WriteUp {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn group(&mut self, group: &Seen) -> bool {
        let hit = group.gap.is_some_and(|gap| gap > 1.0) && (40.0..=80.0).contains(&group.tokens);
        self.0.push(group.at, hit)
    }
}
