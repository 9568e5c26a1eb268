//! Questions over whole cohorts, answered by polars: exact quantiles where the engine keeps sketches.
//!
//! In: streams, pushed one by one with the cohort that they belong to. Out: gap figures per stream and
//! per cohort. Everything is held in memory, 33 bytes an event: this is for questions, the column
//! [`kernel`](crate::kernel) is for datasets. The two are independent of each other, and a test holds
//! them against each other.

use polars::prelude::*;
use sseismo_trace::{Scope, Stream};

use crate::kernel::Row;

/// Events of many streams, as columns.
#[derive(Clone, Debug, Default)]
pub struct Cohorts {
    scopes: Vec<Scope>,
    streams: u32,
    scope: Vec<u32>,
    stream: Vec<u32>,
    t: Vec<i64>,
    kind: Vec<u32>,
    phase: Vec<u32>,
}

/// Gaps inside phases of one cohort, exact.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortGaps {
    /// The cohort.
    pub scope: Scope,
    /// Gaps of at least 1 ms: those between frames.
    pub gaps: u64,
    /// Median, ms.
    pub p50_ms: f64,
    /// 95th percentile, ms.
    pub p95_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Longest, ms.
    pub max_ms: f64,
}

impl Cohorts {
    /// Takes in the timed content events of one stream.
    pub fn push(&mut self, scope: &Scope, stream: &Stream<'_>) {
        let place = self.scopes.iter().position(|known| known == scope).unwrap_or_else(|| {
            self.scopes.push(scope.clone());
            self.scopes.len() - 1
        });
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        for delta in stream.deltas.iter().filter(|delta| delta.is_content()) {
            let Some(t) = delta.t else { continue };
            self.scope.push(place);
            self.stream.push(self.streams);
            self.t.push(t.0);
            self.kind.push(delta.kind as u32);
            self.phase.push(delta.phase as u32);
        }
        self.streams += 1;
    }

    /// Gap figures of each stream, in the order in which streams with events were pushed.
    ///
    /// # Errors
    /// What polars says, out of memory among others.
    pub fn streams(&self) -> PolarsResult<Vec<Row>> {
        let within = || col("gap").filter(col("within"));
        let frame = self
            .gaps()?
            .group_by_stable([col("stream")])
            .agg([
                len().cast(DataType::UInt64).alias("events"),
                within().count().cast(DataType::UInt64).alias("gaps"),
                within().mean().alias("mean"),
                within().std(0).alias("sd"),
                within().max().cast(DataType::Float64).alias("max"),
                within().gt(lit(1_000_000)).sum().cast(DataType::UInt64).alias("dead"),
                within().lt(lit(1_000)).sum().cast(DataType::UInt64).alias("joined"),
            ])
            .collect()?;
        let (events, gaps) = (frame.column("events")?.u64()?, frame.column("gaps")?.u64()?);
        let (mean, sd, max) =
            (frame.column("mean")?.f64()?, frame.column("sd")?.f64()?, frame.column("max")?.f64()?);
        let (dead, joined) = (frame.column("dead")?.u64()?, frame.column("joined")?.u64()?);
        let seconds = |column: &Float64Chunked, i| column.get(i).unwrap_or(0.0) / 1e6;
        Ok((0..frame.height())
            .map(|i| Row {
                events: events.get(i).unwrap_or(0),
                gaps: gaps.get(i).unwrap_or(0),
                mean: seconds(mean, i),
                sd: seconds(sd, i),
                max: seconds(max, i),
                dead: dead.get(i).unwrap_or(0),
                joined: joined.get(i).unwrap_or(0),
            })
            .collect())
    }

    /// Exact quantiles of the gaps between frames of each cohort that has any.
    ///
    /// # Errors
    /// What polars says, out of memory among others.
    pub fn cohorts(&self) -> PolarsResult<Vec<CohortGaps>> {
        let at = |q: f64, name: &str| col("gap").quantile(lit(q), QuantileMethod::Linear).alias(name);
        let frame = self
            .gaps()?
            .filter(col("within").and(col("gap").gt_eq(lit(1_000))))
            .group_by_stable([col("scope")])
            .agg([
                len().cast(DataType::UInt64).alias("gaps"),
                at(0.5, "p50"),
                at(0.95, "p95"),
                at(0.99, "p99"),
                col("gap").max().cast(DataType::Float64).alias("max"),
            ])
            .collect()?;
        let (scope, gaps) = (frame.column("scope")?.u32()?, frame.column("gaps")?.u64()?);
        let quantile = |name: &str, i: usize| -> PolarsResult<f64> {
            Ok(frame.column(name)?.f64()?.get(i).unwrap_or(f64::NAN) / 1e3)
        };
        (0..frame.height())
            .map(|i| {
                Ok(CohortGaps {
                    scope: scope
                        .get(i)
                        .and_then(|place| self.scopes.get(place as usize))
                        .cloned()
                        .unwrap_or_default(),
                    gaps: gaps.get(i).unwrap_or(0),
                    p50_ms: quantile("p50", i)?,
                    p95_ms: quantile("p95", i)?,
                    p99_ms: quantile("p99", i)?,
                    max_ms: quantile("max", i)?,
                })
            })
            .collect()
    }

    /// Each event with the gap before it, and whether that lies inside a phase and is known.
    fn gaps(&self) -> PolarsResult<LazyFrame> {
        let before = |name: &str| col(name).shift(lit(1)).over([col("stream")]);
        let frame = df!(
            "scope" => &self.scope,
            "stream" => &self.stream,
            "t" => &self.t,
            "kind" => &self.kind,
            "phase" => &self.phase,
        )?;
        let same = before("kind")?.eq(col("kind")).and(before("phase")?.eq(col("phase")));
        Ok(frame
            .lazy()
            .with_columns([(col("t") - before("t")?).alias("gap"), same.alias("same")])
            .with_columns([col("same").and(col("gap").gt_eq(lit(0))).fill_null(lit(false)).alias("within")]))
    }
}

#[cfg(test)]
mod tests {
    use sseismo_simulator::timing::Process;
    use sseismo_trace::{Delta, Dim, Kind, Phase, Summary};

    use super::*;
    use crate::kernel::{Columns, FrameGaps, Groups};

    /// Every process, with a second phase in each stream. Moments within 1e-9 s, quantiles within the
    /// histogram's 0.8 %.
    #[test]
    fn polars_and_the_kernel_agree() {
        let (mut cohorts, mut kernel, mut rows) = (Cohorts::default(), Vec::new(), Vec::new());
        for process in Process::ALL {
            let scope = Scope::default().with(Dim::Route, process.name());
            let mut gaps = FrameGaps::default();
            let mut groups = Groups::new(gaps.fine_window());
            for seed in 0..5 {
                let mut deltas: Vec<Delta> = process.deltas(seed);
                deltas.retain(Delta::is_content);
                let half = deltas.len() / 2;
                for delta in &mut deltas[half..] {
                    (delta.kind, delta.phase) = (Kind::Text, Phase::Output);
                }
                let summary = Summary::default();
                cohorts.push(&scope, &Stream { summary: &summary, deltas: &deltas, reads: &[] });
                let t: Vec<i64> = deltas.iter().filter_map(|delta| Some(delta.t?.0)).collect();
                let kind: Vec<Kind> = deltas.iter().map(|delta| delta.kind).collect();
                let phase: Vec<Phase> = deltas.iter().map(|delta| delta.phase).collect();
                let size = vec![1; t.len()];
                // Phase by phase, or the first pass would count the border as well.
                for part in [&t[..half], &t[half..]] {
                    gaps.push(part, None);
                }
                rows.push(groups.push(&Columns {
                    t: &t,
                    measured: None,
                    kind: &kind,
                    phase: &phase,
                    size: &size,
                }));
            }
            kernel.push((scope, gaps));
        }
        let exact = cohorts.streams().unwrap();
        assert_eq!(exact.len(), rows.len());
        for (polars, row) in exact.iter().zip(&rows) {
            assert_eq!(
                (polars.events, polars.gaps, polars.dead, polars.joined),
                (row.events, row.gaps, row.dead, row.joined)
            );
            for (a, b) in [(polars.mean, row.mean), (polars.sd, row.sd), (polars.max, row.max)] {
                assert!((a - b).abs() < 1e-9, "{a} against {b}");
            }
        }
        for (cohort, (scope, gaps)) in cohorts.cohorts().unwrap().iter().zip(&kernel) {
            assert_eq!((&cohort.scope, cohort.gaps), (scope, gaps.gaps().len()));
            let median = gaps.gaps().quantile(0.5).unwrap() / 1e3;
            assert!(
                (median / cohort.p50_ms - 1.0).abs() < 0.05,
                "{scope}: {median} against {}",
                cohort.p50_ms
            );
            let longest = gaps.gaps().max().unwrap();
            assert!((cohort.max_ms * 1e3 - crate::stats::real(longest)).abs() < 0.5);
        }
    }
}
