//! `reload-canary`: compares the error rate of one worker with new code with that of the workers with old code. It knows neither
//! processes nor clocks.

/// Errors that a canary needs to be judged worse: a single one can happen to any worker.
const MIN_ERRORS: u64 = 2;
/// Answers that are needed for a comparison, of the canary and of the old workers.
const MIN_ANSWERS: u64 = 10;
/// The canary is worse if a canary as good as the old workers would have this many errors with a lower probability than this.
const CHANCE_AT_END: f64 = 0.02;
/// The same limit before the end of its time. Repeated tests find something by chance, so it is much stricter.
const CHANCE_MEANWHILE: f64 = 0.001;
/// The same limit for a canary without a single good answer in twice its time, if the old workers have errors too.
const CHANCE_AT_LAST: f64 = 0.1;
/// Terms that are summed at most; those that follow are negligible.
const MAX_TERMS: u64 = 10_000;
/// A term that is smaller than this share of the sum no longer matters.
const MIN_PART: f64 = 1e-9;
/// Factorials from here on are approximated, to ten digits or better.
const MAX_SMALL: u64 = 32;

/// The answers of workers, and how many of them were errors: status 500 and above, broken off, or never sent because the worker
/// was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answers {
    pub requests: u64,
    pub errors: u64,
}

/// The answers of the old workers, to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standard {
    /// Since the canary serves.
    pub meanwhile: Answers,
    /// Since they were started.
    pub since_start: Answers,
}

/// When the canary is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Meanwhile,
    AtEnd,
    /// At the end of the additional time of a doubtful canary.
    AtLast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Worse,
    /// At the end: every answer was an error, but there were too few to blame the code. It is watched for the same time again.
    Doubtful,
    AsGood,
    /// There are too few answers to judge.
    TooFew,
}

impl Answers {
    pub fn plus(self, more: Answers) -> Answers {
        Answers { requests: self.requests + more.requests, errors: self.errors + more.errors }
    }

    /// The answers since an earlier count.
    pub fn since(self, before: Answers) -> Answers {
        Answers { requests: self.requests.saturating_sub(before.requests), errors: self.errors.saturating_sub(before.errors) }
    }

    fn has_only_errors(self) -> bool {
        self.requests > 0 && self.errors == self.requests
    }

    /// Counters are read one after the other while workers go on, so an error may be counted before its request.
    fn consistent(self) -> Answers {
        Answers { requests: self.requests.max(self.errors), ..self }
    }
}

impl Standard {
    /// The answers of the same time are the best comparison: the same clients, the same database. If there are too few of them,
    /// all answers since startup count.
    fn answers(&self) -> (Answers, bool) {
        let is_meanwhile = self.meanwhile.requests >= MIN_ANSWERS;
        (if is_meanwhile { self.meanwhile } else { self.since_start }, is_meanwhile)
    }
}

/// Whether the canary is worse than the old workers.
pub fn judge(canary: Answers, old: &Standard, moment: Moment) -> Verdict {
    let (canary, meanwhile, old) = (canary.consistent(), old.meanwhile.consistent(), old.answers().0.consistent());
    if canary.requests < MIN_ANSWERS && canary.has_only_errors() && meanwhile.has_only_errors() {
        // No worker answers well at present, so earlier answers of the old code say nothing about this canary.
        return Verdict::TooFew;
    }
    let limit = match moment {
        Moment::Meanwhile => CHANCE_MEANWHILE,
        Moment::AtEnd | Moment::AtLast => CHANCE_AT_END,
    };
    let chance = chance(canary, old);
    if canary.errors >= MIN_ERRORS && chance < limit {
        return Verdict::Worse;
    }
    if canary.has_only_errors() && fails_more_often(canary, old) {
        let is_explained = old.errors > 0 && chance >= CHANCE_AT_LAST;
        match moment {
            Moment::Meanwhile => {}
            Moment::AtEnd => return Verdict::Doubtful,
            Moment::AtLast if is_explained => {}
            Moment::AtLast => return Verdict::Worse,
        }
    }
    if canary.requests < MIN_ANSWERS || old.requests < MIN_ANSWERS { Verdict::TooFew } else { Verdict::AsGood }
}

/// `12 of 40 answers were errors, the old workers' 0 of 160`.
pub fn in_words(canary: Answers, old: &Standard) -> String {
    let (canary, (old, is_meanwhile)) = (canary.consistent(), old.answers());
    let old = old.consistent();
    let since = if is_meanwhile { "" } else { " since their start" };
    let Answers { requests, errors } = canary;
    let (answers, were) =
        (if requests == 1 { "answer" } else { "answers" }, if errors == 1 { "was an error" } else { "were errors" });
    format!("{errors} of {requests} {answers} {were}, the old workers' {} of {}{since}", old.errors, old.requests)
}

/// Whether the canary's error rate is higher. False if the old workers have not answered anything.
fn fails_more_often(canary: Answers, old: Answers) -> bool {
    u128::from(canary.errors) * u128::from(old.requests) > u128::from(old.errors) * u128::from(canary.requests)
}

/// The probability that the canary has this many of all errors, or more, if each answer is equally likely to be one (Fisher's
/// exact test, one-sided).
fn chance(canary: Answers, old: Answers) -> f64 {
    if !fails_more_often(canary, old) {
        return 1.0;
    }
    let (errors, all) = (canary.errors + old.errors, canary.requests + old.requests);
    let first = ln_choose(errors, canary.errors) + ln_choose(all - errors, canary.requests - canary.errors);
    let mut term = (first - ln_choose(all, canary.requests)).exp();
    let mut sum = 0.0;
    let most = errors.min(canary.requests).min(canary.errors.saturating_add(MAX_TERMS));
    for found in canary.errors..=most {
        sum += term;
        if term < sum * MIN_PART {
            break;
        }
        let further = (errors - found) as f64 * (canary.requests - found) as f64;
        let good_left = (old.requests - old.errors) + (found - canary.errors) + 1;
        term *= further / ((found + 1) as f64 * good_left as f64);
    }
    sum.min(1.0)
}

/// The logarithm of the binomial coefficient.
fn ln_choose(all: u64, chosen: u64) -> f64 {
    ln_factorial(all) - ln_factorial(chosen) - ln_factorial(all - chosen)
}

fn ln_factorial(number: u64) -> f64 {
    if number < MAX_SMALL {
        return (2..=number).map(|factor| (factor as f64).ln()).sum();
    }
    // Stirling's series.
    let number = number as f64;
    let root = 0.5 * (std::f64::consts::TAU * number).ln();
    number * number.ln() - number + root + 1.0 / (12.0 * number) - 1.0 / (360.0 * number.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(errors: u64, requests: u64) -> Answers {
        Answers { requests, errors }
    }

    fn against(errors: u64, requests: u64) -> Standard {
        Standard { meanwhile: answers(errors, requests), since_start: answers(errors, requests) }
    }

    #[test]
    fn a_canary_is_worse_where_chance_does_not_explain_its_errors() {
        use Moment::{AtEnd, AtLast, Meanwhile};
        use Verdict::{AsGood, Doubtful, TooFew, Worse};
        for (canary, old, moment, wanted) in [
            ((12, 40), (0, 160), AtEnd, Worse),
            ((12, 40), (0, 160), Meanwhile, Worse),
            ((0, 40), (0, 160), AtEnd, AsGood),
            // Errors that the old code has too: the database is down, or a client asks for something that never worked.
            ((12, 40), (48, 160), AtEnd, AsGood),
            ((40, 40), (160, 160), AtEnd, AsGood),
            ((5, 40), (16, 160), AtEnd, AsGood),
            ((1, 40), (16, 160), AtEnd, AsGood),
            // Ten times as many errors.
            ((200, 1000), (20, 1000), Meanwhile, Worse),
            ((2_000, 100_000), (3_000, 1_000_000), Meanwhile, Worse),
            // A tenth more, out of very many.
            ((11_000, 1_000_000), (10_000, 1_000_000), Meanwhile, Worse),
            ((110, 10_000), (100, 10_000), AtEnd, AsGood),
            // One error is never enough if there are good answers.
            ((1, 2), (0, 100_000), AtEnd, TooFew),
            ((1, 2), (0, 100_000), AtLast, TooFew),
            ((1, 40), (0, 100_000), AtLast, AsGood),
            ((2, 40), (0, 160), AtEnd, AsGood),
            ((3, 40), (0, 160), AtEnd, Worse),
            ((3, 40), (0, 160), Meanwhile, AsGood),
            ((3, 3), (0, 10), AtEnd, Worse),
            // A canary without a single good answer is watched once more, and must have one by then.
            ((1, 1), (0, 100_000), Meanwhile, TooFew),
            ((1, 1), (0, 100_000), AtEnd, Doubtful),
            ((1, 1), (0, 100_000), AtLast, Worse),
            ((1, 1), (0, 1), AtEnd, Doubtful),
            ((1, 1), (0, 1), AtLast, Worse),
            ((2, 2), (0, 4), AtEnd, Doubtful),
            ((2, 2), (0, 4), AtLast, Worse),
            ((2, 3), (0, 4), AtLast, TooFew),
            // Unless the old code's errors explain it, or the old workers have no good answer either.
            ((1, 1), (1, 100), AtLast, Worse),
            ((1, 1), (20, 100), AtEnd, Doubtful),
            ((1, 1), (20, 100), AtLast, TooFew),
            ((3, 3), (20, 100), AtLast, Worse),
            ((1, 1), (0, 0), AtEnd, TooFew),
            ((3, 3), (3, 3), AtEnd, TooFew),
            // Nothing to judge, or nothing to compare with.
            ((0, 0), (0, 160), AtEnd, TooFew),
            ((0, 9), (0, 160), AtEnd, TooFew),
            ((12, 40), (0, 0), AtEnd, TooFew),
            ((0, 0), (0, 0), AtEnd, TooFew),
            // An error that was counted before its request.
            ((12, 3), (0, 160), AtEnd, Worse),
        ] {
            let found = judge(answers(canary.0, canary.1), &against(old.0, old.1), moment);
            assert_eq!(found, wanted, "{canary:?} against {old:?}, {moment:?}");
        }
    }

    #[test]
    fn old_workers_that_have_nothing_to_do_meanwhile_are_known_by_what_they_did_before() {
        let old = Standard { meanwhile: answers(0, 1), since_start: answers(1, 500) };
        assert_eq!(judge(answers(12, 40), &old, Moment::AtEnd), Verdict::Worse);
        assert_eq!(in_words(answers(12, 40), &old), "12 of 40 answers were errors, the old workers' 1 of 500 since their start");
        assert_eq!(in_words(answers(1, 1), &against(0, 160)), "1 of 1 answer was an error, the old workers' 0 of 160");
    }

    #[test]
    fn few_errors_do_not_count_while_the_old_workers_fail_as_well() {
        let old = Standard { meanwhile: answers(2, 2), since_start: answers(2, 100_000) };
        for moment in [Moment::Meanwhile, Moment::AtEnd, Moment::AtLast] {
            assert_eq!(judge(answers(3, 3), &old, moment), Verdict::TooFew, "{moment:?}");
        }
        let old = Standard { meanwhile: answers(1, 2), ..old };
        assert_eq!(judge(answers(3, 3), &old, Moment::AtEnd), Verdict::Worse);
    }

    #[test]
    fn the_chance_is_that_of_fishers_test() {
        // By counting: of 9 answers 3 are errors, and in one of C(9,3) ways all 3 are the canary's.
        let close = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-6, "{found} is not {wanted}");
        close(chance(answers(3, 3), answers(0, 6)), 1.0 / 84.0);
        close(chance(answers(2, 40), answers(0, 160)), 40.0 * 39.0 / (200.0 * 199.0));
        // Two terms: C(3,2) C(7,2) and C(3,3) C(7,1) of the C(10,4) ways.
        close(chance(answers(2, 4), answers(1, 6)), (3.0 * 21.0 + 7.0) / 210.0);
        // The approximation continues the sum.
        close(ln_factorial(32), (2..=32).map(|factor| f64::from(factor).ln()).sum());
    }

    #[test]
    fn numbers_of_any_size_are_judged_in_bounded_time() {
        let huge = u64::MAX / 4;
        assert_eq!(judge(answers(huge / 2, huge), &against(huge / 4, huge), Moment::AtEnd), Verdict::Worse);
        assert_eq!(judge(answers(huge / 2, huge), &against(huge / 2, huge), Moment::AtEnd), Verdict::AsGood);
    }
}
