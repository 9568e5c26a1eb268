//! Which of two ways to an upstream holds events back.
//!
//! In: the compared quantities. Out: one sentence, or nothing. A hop that collects events before it passes
//! them on makes the first one later (TTFT up), those behind it come together (inter-token latency down,
//! more events per flush). A slower model raises both times, a faster one with a longer queue leaves the
//! events per flush alone: neither is taken for a hop. Every interval must exclude "no change", and the
//! events per flush must at least double: on a busy machine two captures of the same upstream differ by
//! 0.1 ms and 3 % with intervals that exclude zero.

use super::quantity::{INTER_TOKEN, PER_FLUSH, TTFT};
use super::report::{Hop, MeanDifference, Quantity};

/// The side whose way holds events back. `names` are those of the two sides.
pub(super) fn between(names: &[String; 2], quantities: &[Quantity]) -> Option<Hop> {
    let change = |name: &str| {
        let quantity = quantities.iter().find(|quantity| quantity.name == name)?;
        quantity.mean_difference.or_else(|| exact(quantity))
    };
    let (ttft, itl, per_flush) = (change(TTFT)?, change(INTER_TOKEN)?, change(PER_FLUSH)?);
    let [first, second] = means(quantities)?;
    let guilty = if rises(ttft) && falls(itl) && per_flush.ci95[0] >= first {
        1
    } else if falls(ttft) && rises(itl) && -per_flush.ci95[1] >= second {
        0
    } else {
        return None;
    };
    let figures = [("TTFT", ttft, " ms"), ("inter-token latency", itl, " ms"), (PER_FLUSH, per_flush, "")];
    let figures = figures.map(|(name, change, unit)| {
        let [low, high] = change.ci95;
        // The first side's way is at fault: said from the other side's point of view.
        let (value, low, high) =
            if guilty == 1 { (change.value, low, high) } else { (-change.value, -high, -low) };
        format!("{name} {value:+.1}{unit} ({low:.1} to {high:.1})")
    });
    let [guilty, other] = [&names[guilty], &names[1 - guilty]];
    Some(Hop {
        group: guilty.clone(),
        finding: format!(
            "a hop on the way of {guilty} that {other} does not pass collects events before it passes them \
             on: {}",
            figures.join(", ")
        ),
    })
}

/// Events per flush on both sides.
fn means(quantities: &[Quantity]) -> Option<[f64; 2]> {
    let quantity = quantities.iter().find(|quantity| quantity.name == PER_FLUSH)?;
    Some([quantity.first.mean?, quantity.second.mean?])
}

/// The difference where neither side varies at all, as events per flush may: nothing to be unsure of.
fn exact(quantity: &Quantity) -> Option<MeanDifference> {
    let (first, second) = (quantity.first, quantity.second);
    let value = second.mean? - first.mean?;
    first.mean_ci95.and(second.mean_ci95).map(|_| MeanDifference { value, ci95: [value, value] })
}

fn rises(change: MeanDifference) -> bool {
    change.ci95[0] > 0.0
}

fn falls(change: MeanDifference) -> bool {
    change.ci95[1] < 0.0
}
