//! What the policies' own tests share: a route over `a`, `b` and `c`, of which `c` is the cheapest, and calls.

use sseismo_trace::UtcMicros;

use super::*;
use crate::choice::Ask;
use crate::config::check_in;
use crate::steer::{Source, parse};

/// A call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) model: &'static str,
    pub(crate) effort: Option<&'static str>,
    pub(crate) prompt_tokens: u64,
    pub(crate) session: Option<u64>,
    pub(crate) api: Api,
    pub(crate) streamed: bool,
    pub(crate) caller: Option<&'static str>,
    pub(crate) body: &'static str,
}

/// A call with nothing special.
pub(crate) const PLAIN: Asked = Asked {
    model: "m",
    effort: None,
    prompt_tokens: 0,
    session: None,
    api: Api::Chat,
    streamed: true,
    caller: None,
    body: "{}",
};

impl Default for Asked {
    fn default() -> Self {
        Self { prompt_tokens: 100, ..PLAIN }
    }
}

/// A router whose route `m` has three tiers.
pub(crate) struct Lab {
    pub(crate) router: Arc<Router>,
    pub(crate) now: Instant,
}

fn text(tables: &str) -> String {
    let upstream = |name: &str, price: u32| {
        format!(
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://{name}.example/v1\"\n\
             apis = [\"responses\", \"chat\", \"messages\"]\nprices = {{ m = {{ input = {price}, output = {price} }} }}\n"
        )
    };
    let upstreams = [("a", 3), ("b", 2), ("c", 1)].map(|(name, price)| upstream(name, price)).concat();
    let route = "[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"], [\"c\"]]\n";
    format!("[signals]\nact = true\n{upstreams}{route}{tables}")
}

/// A router with these tables below its route.
pub(crate) fn lab(tables: &str) -> Lab {
    let config = check_in(&text(tables), std::path::Path::new(""), &|_| None);
    let now = Instant::now();
    let config = config.unwrap_or_else(|faults| panic!("{faults:#?}"));
    Lab { router: Arc::new(Router::new(config, &|_| None, 7, now)), now }
}

/// The first fault of these tables.
pub(crate) fn fault(tables: &str) -> String {
    check_in(&text(tables), std::path::Path::new(""), &|_| None).unwrap_err()[0].to_string()
}

/// `policy action why` of each.
pub(crate) fn names(told: &[Told]) -> Vec<String> {
    told.iter()
        .map(|told| {
            [Some(told.policy), Some(told.action), told.why]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

impl Lab {
    pub(crate) fn reconfigured(&self, tables: &str) -> Self {
        let config = check_in(&text(tables), std::path::Path::new(""), &|_| None).unwrap();
        Self { router: Arc::new(self.router.reconfigured(config, &|_| None, self.now)), now: self.now }
    }

    pub(crate) fn considered(&self, asked: &Asked) -> Considered {
        let members = Members::read(asked.body.as_bytes()).unwrap();
        let known = Known {
            api: asked.api,
            model: asked.model,
            effort: asked.effort,
            prompt_tokens: asked.prompt_tokens,
            streamed: asked.streamed,
            caller: asked.caller,
            session: asked.session,
            turn: (0, 1),
            draw: asked.session.unwrap_or_else(|| self.router.draw()),
            members: &members,
            body: asked.body.as_bytes(),
        };
        self.router.consider(&known, self.now).unwrap_or_default()
    }

    /// The upstreams in the order in which the call would be tried.
    pub(crate) fn order(&self, asked: &Asked) -> String {
        let considered = self.considered(asked);
        let ask = Ask {
            model: asked.model,
            api: Some(asked.api),
            prompt_tokens: Some(asked.prompt_tokens),
            effort: asked.effort,
            session: asked.session,
            ..Ask::default()
        };
        let mut plan = self.router.candidates(&ask, self.now).unwrap();
        plan.heed(&considered.advised);
        self.over(asked, considered);
        plan.names().join(" ")
    }

    /// The plan for a call, before anybody advised.
    pub(crate) fn plan(&self, asked: &Asked) -> crate::choice::Plan {
        let ask = Ask { model: asked.model, api: Some(asked.api), session: asked.session, ..Ask::default() };
        self.router.candidates(&ask, self.now).unwrap()
    }

    /// An upstream of the configuration.
    pub(crate) fn upstream(&self, name: &str) -> &Upstream {
        self.router.config().upstreams.iter().find(|upstream| *upstream.name == *name).unwrap()
    }

    /// A call that came to nothing.
    pub(crate) fn over(&self, asked: &Asked, considered: Considered) {
        let caller = asked.caller.map(str::to_owned);
        considered.ended(&mut Entry { caller, ..Entry::default() }, self.now);
    }

    pub(crate) fn signal(&self, json: &str) {
        for signal in parse(json.as_bytes(), UtcMicros(0)).unwrap() {
            let signal = sseismo_trace::Signal { at: crate::clock::now(), ..signal };
            self.router.signal(signal, Source::Admin, self.now);
        }
    }

    /// Answers of `upstream` were wrong.
    pub(crate) fn harm(&self, upstream: &str) {
        (0..30).for_each(|_| self.router.label(upstream, "m", false, self.now));
    }

    /// Lets time go on until the signals were looked at again.
    pub(crate) fn look(&self) {
        self.router.steer(self.now + Duration::from_secs(1));
    }
}

#[test]
fn advice_is_merged_with_the_stated_precedence() {
    let lab = lab("");
    let told = |action| Told { policy: "test", action, why: None };
    let name = |name: &str| vec![Arc::<str>::from(name)];
    let order = |advice: Vec<Advice>| {
        let mut advised = Advised::default();
        for advice in advice {
            advised.add(advice, told("x"));
        }
        let ask = Ask { model: "m", api: Some(Api::Chat), ..Ask::default() };
        let mut plan = lab.router.candidates(&ask, lab.now).unwrap();
        plan.heed(&advised);
        plan.names().join(" ")
    };
    assert_eq!(order(vec![]), "a b c");
    assert_eq!(order(vec![Advice::Prefer(name("c"))]), "c a b");
    assert_eq!(order(vec![Advice::Avoid(name("a"))]), "b c a");
    assert_eq!(order(vec![Advice::Prefer(name("a")), Advice::Avoid(name("a"))]), "b c a", "avoided first");
    assert_eq!(order(vec![Advice::FromTier(2)]), "c a b");
    assert_eq!(order(vec![Advice::Spill { cheapest: true }]), "c b a");
    assert_eq!(order(vec![Advice::Spill { cheapest: true }, Advice::Prefer(name("b"))]), "b c a");
    let all = ["a", "b", "c"].into_iter().map(Arc::from).collect();
    assert_eq!(order(vec![Advice::Avoid(all)]), "a b c", "who stands last is still asked");
    assert_eq!(
        order(vec![Advice::Without(name("a")), Advice::Prefer(name("a"))]),
        "b c",
        "left out is left out"
    );
}

#[test]
fn the_routes_preset_turns_on_what_the_write_ups_have_figures_for() {
    let lab = lab("preset = \"write-up\"\n[route.size_window]\nact = true\n");
    let (_, policies) = lab.router.policies("m").unwrap();
    let installed: Vec<_> = policies.iter().map(|own| (own.policy.name(), own.act)).collect();
    assert!(installed.contains(&("deep_concurrency", false)) && installed.contains(&("size_window", true)));
    assert!(!installed.iter().any(|(name, _)| *name == aimd_share::NAME), "{installed:?}");
    // With the write-ups' figures: prompts of 80 to 260 tokens, and the seventh deep call.
    assert_eq!(lab.order(&Asked { prompt_tokens: 80, ..Asked::default() }), "c b a");
    assert_eq!(lab.order(&Asked { prompt_tokens: 79, ..Asked::default() }), "a b c");
    let deep = Asked { effort: Some("high"), prompt_tokens: 500, ..Asked::default() };
    let held: Vec<_> = (0..7).map(|_| lab.considered(&deep).would_have.len()).collect();
    assert_eq!(held, [0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn of_a_single_tier_the_heaviest_member_is_the_primary() {
    let text = text("").replace(
        "[[\"a\"], [\"b\"], [\"c\"]]",
        "[[\"a\", { upstream = \"b\", weight = 3 }, { upstream = \"c\", weight = 3 }]]",
    );
    let config = check_in(&text, std::path::Path::new(""), &|_| None).unwrap();
    let names: Vec<_> = primary(&config.routes[0]).map(|upstream| &*upstream.name).collect();
    assert_eq!(names, ["b"]);
}
