//! Measures the cost of walking rules for a request whose path none of them matches: `cargo run --release --example walk_speed -p
//! bolide-routes`. The same run prints the cost of the expressions alone, one by one and as a set. Run it by hand.

use std::borrow::Cow;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use bolide_contract::answering::RouteRule;
use bolide_routes::{Overrides, Routes, ServerValue, Values};
use regex::bytes::{RegexBuilder, RegexSetBuilder};

const WALKS: u32 = 200_000;

struct Fixed;

impl Values for Fixed {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        (name == b"PATH_INFO").then_some(Cow::Borrowed(b"/articles/2026/11/how-routes-are-walked"))
    }

    fn server(&self, _: ServerValue) -> u64 {
        0
    }
}

fn main() {
    for count in [1, 2, 3, 5, 20] {
        let expressions: Vec<String> = (0..count).map(|number| format!("^/area{number}/(\\w+)/(.*)$")).collect();
        let rule = |text: &String| RouteRule {
            option: "route".to_owned(),
            text: format!("{text} redirect:/new/$1/$2"),
            origin: String::new(),
        };
        let (routes, _) = Routes::compile(&expressions.iter().map(rule).collect::<Vec<_>>(), Path::new(""));
        let Some(routes) = routes else { continue };
        let walk = timed(|| {
            let mut overrides = Overrides::default();
            black_box(routes.requests.walk(black_box(&Fixed), &mut overrides));
        });
        let compiled = expressions.iter().map(|text| RegexBuilder::new(text).unicode(false).build());
        let Ok(compiled) = compiled.collect::<Result<Vec<_>, _>>() else { continue };
        let one_by_one = timed(|| {
            let path = Fixed.value(b"PATH_INFO").unwrap_or_default();
            black_box(compiled.iter().any(|pattern| pattern.is_match(black_box(&path))));
        });
        let Ok(set) = RegexSetBuilder::new(&expressions).unicode(false).build() else { continue };
        let together = timed(|| {
            let path = Fixed.value(b"PATH_INFO").unwrap_or_default();
            black_box(set.matches(black_box(&path)).matched_any());
        });
        println!(
            "{count:>3} rules: a walk {walk:>5.0} ns; expressions one by one {one_by_one:>5.0} ns, as a set {together:>5.0} ns"
        );
    }
}

fn timed(mut body: impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..WALKS {
        body();
    }
    began.elapsed().as_nanos() as f64 / f64::from(WALKS)
}
