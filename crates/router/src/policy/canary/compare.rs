//! Two arms of calls in, whether the one is worse out.
//!
//! Everything that is compared is a share: calls that failed, answers that a content check failed, and calls
//! whose first content came later than nine tenths of both arms' together (were the arms alike, each would have
//! a tenth of those). Each share is held against the other by Fisher's exact test, one-sided, which is right for
//! the few failures that there are; the interval of the difference is Newcombe's from Wilson's scores.

/// z of a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// The quantile from which a first content is late.
const LATE: f64 = 0.9;

/// One call of an arm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) failed: bool,
    /// What a content check said, where somebody checked.
    pub(super) unfit: Option<bool>,
    /// The wait for the first content, seconds.
    pub(super) first_content: Option<f64>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Failed,
    Unfit,
    Late,
}

pub(super) const METRICS: [Metric; 3] = [Metric::Failed, Metric::Unfit, Metric::Late];

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Failed => "errors",
            Self::Unfit => "content-checks",
            Self::Late => "first-content-above-p90",
        }
    }
}

/// A share in each arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compared {
    pub(super) metric: Metric,
    /// Calls that have it, and calls, of the canary.
    pub(super) canary: (u64, u64),
    /// The same of the control.
    pub(super) control: (u64, u64),
    /// How likely the canary is to have as many or more by chance.
    pub(super) p: f64,
    /// The canary's share less the control's, and its 95 % interval.
    pub(super) difference: f64,
    pub(super) interval: (f64, f64),
}

/// Compares one metric; `None` when an arm has no call that tells.
pub(super) fn compare(metric: Metric, canary: &[Sample], control: &[Sample]) -> Option<Compared> {
    let late = match metric {
        Metric::Late => late(canary, control)?,
        Metric::Failed | Metric::Unfit => f64::INFINITY,
    };
    let has = |sample: &Sample| match metric {
        Metric::Failed => Some(sample.failed),
        Metric::Unfit => sample.unfit,
        Metric::Late => sample.first_content.map(|wait| wait > late),
    };
    let count = |arm: &[Sample]| {
        let told = arm.iter().filter_map(has);
        told.fold((0, 0), |(with, all), has| (with + u64::from(has), all + 1))
    };
    let (canary, control) = (count(canary), count(control));
    if canary.1 == 0 || control.1 == 0 {
        return None;
    }
    let (difference, interval) = newcombe(canary, control);
    Some(Compared { metric, canary, control, p: fisher(canary, control), difference, interval })
}

/// The wait that a tenth of both arms together exceed.
fn late(canary: &[Sample], control: &[Sample]) -> Option<f64> {
    let mut waits: Vec<f64> =
        canary.iter().chain(control).filter_map(|sample| sample.first_content).collect();
    let place = rank(waits.len())?;
    Some(*waits.select_nth_unstable_by(place, f64::total_cmp).1)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list of a few thousand"
)]
fn rank(count: usize) -> Option<usize> {
    Some(((count.checked_sub(1)? as f64) * LATE) as usize)
}

/// One-sided: the probability of at least `canary.0` of the pooled ones in an arm of this size.
fn fisher(canary: (u64, u64), control: (u64, u64)) -> f64 {
    let ((a, m), (b, n)) = (canary, control);
    let (with, all) = (a + b, m + n);
    let logs = log_factorials(all);
    let log = |n: u64| usize::try_from(n).ok().and_then(|n| logs.get(n)).copied().unwrap_or(f64::NAN);
    let choose = |n: u64, k: u64| log(n) - log(k) - log(n - k);
    let at = |k: u64| (choose(m, k) + choose(n, with - k) - choose(all, with)).exp();
    (a..=with.min(m)).filter(|k| with - k <= n).map(at).sum::<f64>().min(1.0)
}

fn log_factorials(most: u64) -> Vec<f64> {
    let mut sum = 0.0;
    (0..=most)
        .map(|n| {
            sum += number(n.max(1)).ln();
            sum
        })
        .collect()
}

/// The difference of two shares, and its interval.
fn newcombe(one: (u64, u64), other: (u64, u64)) -> (f64, (f64, f64)) {
    let share = |(with, all): (u64, u64)| number(with) / number(all);
    let (p, q) = (share(one), share(other));
    let ((l1, u1), (l2, u2)) = (wilson(p, number(one.1)), wilson(q, number(other.1)));
    let difference = p - q;
    let low = difference - (p - l1).hypot(u2 - q);
    let high = difference + (u1 - p).hypot(q - l2);
    (difference, (low, high))
}

fn wilson(share: f64, n: f64) -> (f64, f64) {
    let (middle, width) =
        (share + Z * Z / (2.0 * n), Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt());
    let scale = 1.0 + Z * Z / n;
    ((middle - width) / scale, (middle + width) / scale)
}

#[expect(clippy::cast_precision_loss, reason = "counts of calls stay far below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Fisher's tea: 3 of 4 against 1 of 4 has p = 17/70 one-sided. Newcombe (1998): 56/70 less 48/80 is 0.2 from
    /// 0.0524 to 0.3339 (method 10).
    #[test]
    fn figures_are_those_of_the_literature() {
        assert!((fisher((3, 4), (1, 4)) - 17.0 / 70.0).abs() < 1e-12);
        assert!((fisher((0, 9), (3, 9)) - 1.0).abs() < 1e-12);
        let (difference, (low, high)) = newcombe((56, 70), (48, 80));
        assert!(
            (difference - 0.2).abs() < 1e-12 && (low - 0.0524).abs() < 5e-5 && (high - 0.3339).abs() < 5e-5
        );
    }

    fn arm(rng: &mut ChaCha8Rng, count: usize, errors: f64, slower: f64) -> Vec<Sample> {
        let mut sample = || Sample {
            failed: rng.random::<f64>() < errors,
            unfit: None,
            // Log-normal, more or less: the sum of uniforms in the exponent.
            first_content: Some(slower * (0..6).map(|_| rng.random::<f64>() - 0.5).sum::<f64>().exp()),
        };
        (0..count).map(|_| sample()).collect()
    }

    /// Equal arms are told apart no more often than the level says, and a real difference nearly always.
    #[test]
    fn the_level_holds_and_a_difference_is_seen() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let mut seen = |metric, errors, slower| {
            let found = (0..500).filter(|_| {
                let control = arm(&mut rng, 300, 0.02, 1.0);
                let canary = arm(&mut rng, 200, errors, slower);
                compare(metric, &canary, &control).unwrap().p < 0.01
            });
            found.count()
        };
        let (errors, late) = (seen(Metric::Failed, 0.02, 1.0), seen(Metric::Late, 0.02, 1.0));
        assert!(errors <= 12 && late <= 12, "{errors} and {late} of 500 at 1 %");
        let (errors, late) = (seen(Metric::Failed, 0.15, 1.0), seen(Metric::Late, 0.02, 2.0));
        assert!(errors > 475 && late > 475, "{errors} and {late}");
    }

    #[test]
    fn what_nobody_checked_is_not_compared() {
        let sample = Sample { failed: false, unfit: None, first_content: None };
        assert_eq!(compare(Metric::Unfit, &[sample], &[sample]), None);
        assert_eq!(compare(Metric::Late, &[sample], &[sample]), None);
        assert!(compare(Metric::Failed, &[sample], &[]).is_none());
    }
}
