//! What a comparison says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the report's form.
pub const SCHEMA: &str = "sseismo.compare/1";

/// One comparison of two groups. Differences are second minus first, ratios second over first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The two groups.
    pub groups: [GroupInfo; 2],
    /// What counts as one independent observation.
    pub unit: Unit,
    /// The lattice that the shares refer to.
    pub lattice: LatticeUsed,
    /// Shares, between the groups.
    pub proportions: Vec<Proportion>,
    /// Means and quantiles, between the groups.
    pub quantities: Vec<Quantity>,
    /// Requests and events per hour, between the groups.
    #[serde(default)]
    pub rates: Vec<Rate>,
    /// Labels by where the reasoning-token count lies, both groups together.
    pub associations: Vec<Proportion>,
    /// Which side's way holds events back; absent when no such side can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<Hop>,
    /// Which hours of day were compared; absent when all were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_hours: Option<MatchedHours>,
    /// What no figure here proves.
    pub does_not_prove: String,
    /// Reservations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One side's way to us holds events back that pass at once on the other's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// The side.
    pub group: String,
    /// One sentence with the figures.
    pub finding: String,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Streams in it.
    pub rows: u64,
    /// Independent observations in it.
    pub units: u64,
}

/// What counts as one independent observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A session or thread.
    Session,
    /// A client turn with all its attempts.
    Turn,
    /// Each stream by itself.
    Row,
}

impl Unit {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Turn => "turn",
            Self::Row => "row",
        }
    }
}

/// A lattice of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatticeUsed {
    /// Distance between two values, tokens.
    pub step: u32,
    /// Smallest positive value, tokens.
    pub offset: u32,
    /// Found in these counts; otherwise the field's 518n−2 is used for want of another.
    pub found: bool,
}

/// Hits out of n.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Rows that are hits.
    pub hits: u64,
    /// Rows that could have been.
    pub n: u64,
    /// `hits` / `n`; absent when `n` is 0.
    pub share: Option<f64>,
    /// 95 % interval: Wilson for independent observations, Student's t over clusters otherwise.
    pub ci95: [f64; 2],
}

/// One share on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proportion {
    /// What is counted.
    pub name: String,
    /// Names of the two sides.
    pub between: [String; 2],
    /// First side.
    pub first: Share,
    /// Second side.
    pub second: Share,
    /// Second minus first; absent when a side is empty.
    pub difference: Option<f64>,
    /// 95 % interval of the difference: Newcombe for rows, Student's t over clusters otherwise.
    pub difference_ci95: Option<[f64; 2]>,
    /// Tests, the one to go by first.
    pub tests: Vec<Test>,
    /// Why the figures are too few to go by; absent when they are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_few: Option<String>,
    /// What the figures do not prove.
    pub does_not_prove: String,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// `fisher-exact`, `two-proportion-z`, `welch-t` (over clusters where there are any),
    /// `mann-whitney`, `kolmogorov-smirnov` or `poisson-conditional`.
    pub name: String,
    /// What it took for one observation.
    pub unit: Unit,
    /// Two-sided p-value.
    pub p: f64,
    /// The same after Benjamini–Hochberg over the first test of each line of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<f64>,
}

/// One measured quantity on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantity {
    /// What is measured: a trace column, or the standard name of what the events say.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// First side.
    pub first: QuantitySide,
    /// Second side.
    pub second: QuantitySide,
    /// Difference of the means; absent when it cannot be judged.
    pub mean_difference: Option<MeanDifference>,
    /// Ratios of quantiles.
    pub quantile_ratios: Vec<QuantileRatio>,
    /// P(second > first) + P(equal) / 2 over pairs of observations; 0.5 when neither tends to be larger.
    pub superiority: Option<f64>,
    /// Tests, the one to go by first.
    pub tests: Vec<Test>,
    /// Why the figures are too few to go by; absent when they are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_few: Option<String>,
    /// What the figures do not prove.
    pub does_not_prove: String,
}

/// One side of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantitySide {
    /// Rows with a value.
    pub n: u64,
    /// Mean over rows.
    pub mean: Option<f64>,
    /// 95 % interval of the mean.
    pub mean_ci95: Option<[f64; 2]>,
}

/// Second mean minus first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanDifference {
    /// The difference.
    pub value: f64,
    /// 95 % interval.
    pub ci95: [f64; 2],
}

/// A quantile on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantileRatio {
    /// The quantile, 0 to 1.
    pub q: f64,
    /// Its value on the first side; absent without data, and where the ratio is refused for want of it.
    pub first: Option<f64>,
    /// Its value on the second side.
    pub second: Option<f64>,
    /// Second over first.
    pub ratio: Option<f64>,
    /// 95 % interval by a seeded bootstrap over units.
    pub ci95: Option<[f64; 2]>,
    /// Why no ratio is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One rate on two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// What is counted per which hour.
    pub name: String,
    /// What one event is.
    pub event: String,
    /// What an hour is.
    pub hour: String,
    /// First side.
    pub first: RateSide,
    /// Second side.
    pub second: RateSide,
    /// Second over first; absent when the first side has no event.
    pub ratio: Option<f64>,
    /// 95 % limits of the ratio (Clopper and Pearson's, given all events); an absent one is none at all.
    pub ratio_ci95: [Option<f64>; 2],
    /// Tests, the one to go by first.
    pub tests: Vec<Test>,
    /// Why the figures are too few to go by; absent when they are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_few: Option<String>,
    /// What the figures do not prove.
    pub does_not_prove: String,
}

/// One side of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateSide {
    /// Events.
    pub events: u64,
    /// Hours in which they could have come.
    pub hours: f64,
    /// Events per hour; absent without hours.
    pub rate: Option<f64>,
    /// 95 % interval (Garwood's, of the events divided by their design effect).
    pub ci95: Option<[f64; 2]>,
    /// How many events count as one independent event, because those of a unit come together.
    pub design_effect: f64,
}

/// What hours are matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HourKey {
    /// The hour of day, UTC.
    Hour,
    /// The weekday and the hour of day, UTC: the first side has each weekday of the second.
    WeekdayAndHour,
}

impl HourKey {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour of day",
            Self::WeekdayAndHour => "weekday and hour of day",
        }
    }
}

/// Which hours of day were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchedHours {
    /// What they are matched by.
    pub by: HourKey,
    /// How many such hours both sides have.
    pub hours: u64,
    /// Days (UTC) with streams in them, on either side.
    pub days: [u64; 2],
    /// Streams left out because the other side has no such hour, on either side.
    pub left_out: [u64; 2],
    /// Streams left out because nobody knows when they started, on either side.
    pub without_start: [u64; 2],
}

/// JSON Schema of [`CompareReport`].
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(CompareReport)
}
