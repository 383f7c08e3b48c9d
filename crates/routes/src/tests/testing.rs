//! Rules of tests that use services: compiled from pairs of an option and its text, and walked for one request.

use std::borrow::Cow;
use std::path::Path;

use bolide_contract::answering::RouteRule;

use crate::{Mistake, Overrides, Routes, ServerValue, Services, Values, Verdict};

/// A request with one variable.
struct Request<'a> {
    variable: (&'a str, &'a str),
    services: &'a dyn Services,
}

impl Values for Request<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        (name == self.variable.0.as_bytes()).then(|| self.variable.1.as_bytes().into())
    }

    fn server(&self, _: ServerValue) -> u64 {
        0
    }

    fn services(&self) -> Option<&dyn Services> {
        Some(self.services)
    }
}

pub fn compile(rules: &[(&str, &str)]) -> (Option<Routes>, Vec<Mistake>) {
    let rule = |(option, text): &(&str, &str)| RouteRule {
        option: (*option).to_owned(),
        text: (*text).to_owned(),
        origin: "uwsgi.ini:1".to_owned(),
    };
    Routes::compile(&rules.iter().map(rule).collect::<Vec<_>>(), Path::new(""))
}

/// Counts a request that has this variable in the limits that come before rules, and walks the rules.
pub fn walk(services: &dyn Services, variable: (&str, &str), rules: &[(&str, &str)]) -> (Verdict, Overrides) {
    let (routes, mistakes) = compile(rules);
    let routes = routes.unwrap_or_else(|| panic!("{mistakes:?}"));
    let mut overrides = Overrides::default();
    let request = Request { variable, services };
    let path = request.value(b"PATH_INFO").unwrap_or_default();
    let verdict = match routes.client_limits.refusal(&request.network(), &path, services) {
        Some(answer) => Verdict::Answer(answer),
        None => match routes.limits.walk(&request, &mut overrides) {
            Verdict::Serve => routes.requests.walk(&request, &mut overrides),
            refused => refused,
        },
    };
    (verdict, overrides)
}
