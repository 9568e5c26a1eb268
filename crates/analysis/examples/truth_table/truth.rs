//! What is right to say of each scenario of `data/scenarios`: one line each.

use sseismo_trace::{Cause, SignatureId, Verdict};

use SignatureId::{Burst, Concurrency, CountLattice, RetryAmplification, Saturation, SizeWindow};

/// One scenario's truth.
pub(crate) struct Truth {
    /// Its file in `data/scenarios`.
    pub(crate) scenario: &'static str,
    /// Streams of a run: enough for the signature that it is for.
    pub(crate) streams: usize,
    /// What it shows, and the word for it.
    shows: &'static [(SignatureId, Verdict)],
    /// What may be said or not: a side effect of what it does.
    may: &'static [SignatureId],
    /// The cause that its stored columns prove.
    pub(crate) cause: Option<Cause>,
}

impl Truth {
    /// The word that is right for `signature`, where it has one to say.
    pub(crate) fn word(&self, signature: SignatureId) -> Option<Verdict> {
        self.shows.iter().find(|(shown, _)| *shown == signature).map(|(_, word)| *word)
    }

    /// Whether an alarm of `signature` would be false.
    pub(crate) fn is_innocent_of(&self, signature: SignatureId) -> bool {
        !self.word(signature).is_some_and(Verdict::is_alarm) && !self.may.contains(&signature)
    }

    /// Whether no signature has anything to say of it.
    pub(crate) fn is_innocent(&self) -> bool {
        self.shows.is_empty() && self.may.is_empty()
    }

    const fn innocent(scenario: &'static str) -> Self {
        Self { scenario, streams: 60, shows: &[], may: &[], cause: None }
    }

    const fn showing(scenario: &'static str, shows: &'static [(SignatureId, Verdict)]) -> Self {
        Self { shows, ..Self::innocent(scenario) }
    }

    const fn with(self, streams: usize) -> Self {
        Self { streams, ..self }
    }

    const fn perhaps(self, may: &'static [SignatureId]) -> Self {
        Self { may, ..self }
    }

    const fn because(self, cause: Cause) -> Self {
        Self { cause: Some(cause), ..self }
    }
}

const BURST: &[(SignatureId, Verdict)] = &[(Burst, Verdict::Present)];
/// Requests fail, and clients ask again.
const RETRIES: &[(SignatureId, Verdict)] = &[(RetryAmplification, Verdict::Present)];

/// Every scenario, those that nothing is wrong with first.
pub(crate) const TRUTHS: &[Truth] = &[
    Truth::innocent("steady"),
    Truth::innocent("poisson"),
    Truth::innocent("lognormal"),
    Truth::innocent("slow-phases"),
    Truth::innocent("summary-parts").because(Cause::PhaseBorder),
    Truth::innocent("big-frames"),
    Truth::innocent("silent-reasoning").because(Cause::PhaseBorder),
    Truth::innocent("resampled-gpt-4o"),
    Truth::innocent("resampled-aiperf"),
    Truth::innocent("resampled-summary"),
    Truth::innocent("servegen-client"),
    Truth::innocent("popular-sizes").with(1_500),
    Truth::innocent("size-trend").with(1_500),
    Truth::innocent("busy-hours").with(2_200),
    Truth::innocent("failures-anywhere").with(1_000),
    Truth::showing("reporting-unit", &[(CountLattice, Verdict::ReportingQuantised)]).with(300),
    // A silence is no burst: what follows it comes at the usual pace.
    Truth::innocent("dead-air"),
    Truth::innocent("dead-air-pings"),
    Truth::innocent("dead-air-comments"),
    Truth::innocent("silence-before-headers"),
    Truth::innocent("silence-after-headers").because(Cause::PhaseBorder),
    Truth::innocent("silence-mid-stream"),
    Truth::innocent("slow-drip"),
    // Long answers; the bad line of the other is skipped by clients and the answer completes.
    Truth::innocent("endless"),
    Truth::innocent("malformed"),
    Truth::showing("write-up-burst", BURST).because(Cause::Unknown),
    Truth::showing("multi-frame-burst", BURST).because(Cause::Unknown),
    Truth::showing("token-bucket", BURST).because(Cause::Unknown),
    Truth::showing("onset", BURST).because(Cause::Unknown),
    Truth::showing("byte-buffer", BURST).because(Cause::ProxyBuffering),
    Truth::showing("cork", &[(Burst, Verdict::Coalesced)]).because(Cause::TcpCoalescing),
    Truth::showing("burst-pings", BURST).because(Cause::UpstreamBatching),
    Truth::showing("burst-throttled", BURST)
        .with(240)
        .perhaps(&[RetryAmplification])
        .because(Cause::RateLimitCooldown),
    Truth::showing("burst-retried", &[(Burst, Verdict::Present), (RetryAmplification, Verdict::Present)])
        .with(300)
        .because(Cause::RetryAmplification),
    Truth::showing("count-lattice", &[(CountLattice, Verdict::BoundaryStops)]).with(300),
    Truth::showing("shard-pinning", &[(SizeWindow, Verdict::Present)]).with(2_500),
    Truth::showing("concurrency-cooldown", &[(Concurrency, Verdict::Present)])
        .with(1_500)
        .perhaps(&[RetryAmplification]),
    Truth::showing("concurrency-cooldown-bare", &[(Concurrency, Verdict::Present)])
        .with(1_500)
        .perhaps(&[RetryAmplification]),
    Truth::showing("saturation", &[(Saturation, Verdict::Present)]).with(1_000),
    Truth::showing("retry-storm", RETRIES).with(150),
    Truth::showing("http-error", RETRIES).with(150),
    Truth::showing("cut", RETRIES).with(150),
    Truth::showing("clean-eof", RETRIES).with(150),
    Truth::showing("reset", RETRIES).with(150),
    Truth::showing("error-event-first", RETRIES).with(150),
    Truth::showing("error-event-mid-stream", RETRIES).with(150),
    Truth::showing("quota-credit", RETRIES).with(600),
    Truth::showing("quota-plan", RETRIES).with(600),
    Truth::showing("quota-requests", RETRIES).with(600),
    Truth::showing("quota-tokens", RETRIES).with(600),
];
