//! What scrapers get, kept for a second: its numbers are collected once however many scrapers ask, and each form is written once.
//! It collects nothing itself. The master runs it.

use bolide_services::openmetrics::{self, Facts, PageForm};
use bolide_supervision::sockets::stats_server::{Answer, Page};

/// For how long the same numbers are given, in milliseconds.
const FRESH_MS: u64 = 1000;

/// The numbers that a scraper has got last.
#[derive(Debug, Default)]
pub struct Scraped {
    /// With the time of their collection.
    facts: Option<(u64, Facts)>,
    pages: Vec<(PageForm, Page)>,
}

impl Scraped {
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.facts.as_ref().is_none_or(|(taken_ms, _)| now_ms >= taken_ms + FRESH_MS)
    }

    pub fn renew(&mut self, facts: Facts, now_ms: u64) {
        (self.facts, self.pages) = (Some((now_ms, facts)), Vec::new());
    }

    /// Answers with the form that the scraper prefers.
    pub fn answer(&mut self, accept: &str) -> Answer {
        let form = PageForm::preferred(accept);
        let known = self.pages.iter().find(|(known, _)| *known == form).map(|(_, page)| page.clone());
        let page = known.unwrap_or_else(|| {
            let written = self.facts.as_ref().map(|(_, facts)| openmetrics::page(facts, form)).unwrap_or_default();
            let page = Page::from(written);
            self.pages.push((form, page.clone()));
            page
        });
        Answer::page(200, form.content_type(), page)
    }
}
