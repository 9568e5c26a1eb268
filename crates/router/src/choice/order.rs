//! The order of a tier: weights and a draw in, ranks out.
//!
//! Each member's rank is −ln(u)/weight with u uniform in (0, 1]: the smallest of such ranks falls on a member
//! with probability weight ÷ sum of weights (the minimum of exponential variables), and the rest follow in the
//! same way. With u from a hash of session and upstream this is weighted rendezvous hashing: a session keeps its
//! order whatever else is added or removed.

/// The rank of a member; smaller goes first. Weight 0 is infinite: after all others.
pub(super) fn rank(draw: u64, name: &str, weight: f64) -> f64 {
    if weight > 0.0 { -uniform(draw, name).ln() / weight } else { f64::INFINITY }
}

/// A number in (0, 1] that looks random and depends on nothing else.
pub(crate) fn uniform(draw: u64, name: &str) -> f64 {
    let hash = name.bytes().fold(mix(draw), |hash, byte| mix(hash ^ u64::from(byte)));
    // 53 bits are what an f64 holds exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let share = ((mix(hash) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    share
}

/// The finaliser of `SplitMix64` (Steele, Lea and Flood 2014) on the next state.
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// The first place falls on each member as often as its weight says, within five standard errors.
        #[test]
        fn weights_are_respected(weights in prop::collection::vec(1..100u32, 2..6), seed in any::<u64>()) {
            const DRAWS: u32 = 4000;
            let names: Vec<String> = (0..weights.len()).map(|member| format!("upstream-{member}")).collect();
            let mut firsts = vec![0_u32; weights.len()];
            for draw in 0..u64::from(DRAWS) {
                let rank = |member: usize| rank(seed.wrapping_add(draw), &names[member], f64::from(weights[member]));
                let first = (0..weights.len()).min_by(|a, b| rank(*a).total_cmp(&rank(*b))).unwrap();
                firsts[first] += 1;
            }
            let sum: u32 = weights.iter().sum();
            for (weight, first) in weights.iter().zip(firsts) {
                let share = f64::from(*weight) / f64::from(sum);
                let got = f64::from(first) / f64::from(DRAWS);
                let error = (share * (1.0 - share) / f64::from(DRAWS)).sqrt();
                prop_assert!((got - share).abs() < 5.0 * error + 1e-9, "{got} instead of {share}");
            }
        }
    }
}
