//! Walks of rules that use a cache, which is a table in a test's own memory.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bolide_contract::rate::{Counted, Rate};

use crate::testing::{self, compile};
use crate::{Caches, Change, MetricChange, Operator, Overrides, Services, Store, Verdict, Write};

type Bytes = Vec<u8>;

/// Items by cache and key.
#[derive(Default)]
struct Table {
    items: RefCell<BTreeMap<(Bytes, Bytes), Bytes>>,
    writes: RefCell<Vec<i64>>,
}

impl Caches for Table {
    fn response(&self, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn get(&self, cache: &[u8], key: &[u8]) -> Option<(Vec<u8>, u64)> {
        self.items.borrow().get(&(cache.to_vec(), key.to_vec())).map(|value| (value.clone(), 7))
    }

    fn exists(&self, cache: &[u8], key: &[u8]) -> bool {
        self.get(cache, key).is_some()
    }

    fn write(&self, cache: &[u8], key: &[u8], write: &Write<'_>, may_wait: bool) -> bool {
        if !may_wait {
            return false;
        }
        self.writes.borrow_mut().push(write.expires_s);
        let mut items = self.items.borrow_mut();
        let place = (cache.to_vec(), key.to_vec());
        match write.change {
            Change::Add(value) => _ = items.entry(place).or_insert(value.to_vec()),
            Change::Calculate(operator, operand) => {
                let before = items.get(&place).map_or(0, |value| i64::from_ne_bytes(value.as_slice().try_into().unwrap()));
                let after = match operator {
                    Operator::Plus => before + operand,
                    Operator::Minus => before - operand,
                    Operator::Times => before * operand,
                    Operator::Divide => before / operand,
                };
                items.insert(place, after.to_ne_bytes().to_vec());
            }
        }
        true
    }
}

impl Services for Table {
    fn caches(&self) -> &dyn Caches {
        self
    }

    fn metric(&self, _: &[u8]) -> i64 {
        0
    }

    fn change_metric(&self, _: &[u8], _: MetricChange) -> bool {
        false
    }

    fn raise_signal(&self, _: u8) {}

    fn raise_alarm(&self, _: &[u8], _: &[u8]) {}

    fn count(&self, _: usize, _: &[u8], _: Rate) -> Counted {
        unimplemented!("no rule of these tests has a limit")
    }
}

fn walk(table: &Table, rules: &[(&str, &str)]) -> (Verdict, Overrides) {
    testing::walk(table, ("REQUEST_URI", "/a,b"), rules)
}

#[test]
fn a_cached_value_is_the_answer_and_a_missing_one_passes_the_request_on() {
    let table = Table::default();
    let rules = [("route-run", "cache:key=page-${REQUEST_URI},name=pages,content_type=text/plain,mime=1,no_offload=1")];
    assert_eq!(walk(&table, &rules).0, Verdict::Serve);
    table.items.borrow_mut().insert((b"pages".to_vec(), b"page-/a,b".to_vec()), b"content".to_vec());
    let (Verdict::Cached(cached), _) = walk(&table, &rules) else { panic!("no answer") };
    assert_eq!((cached.value.as_slice(), cached.expires_s, cached.key.as_slice()), (&b"content"[..], 7, &b"page-/a,b"[..]));
    assert_eq!((cached.form.content_type.as_str(), cached.form.type_by_key), ("text/plain", true));
}

#[test]
fn cachestore_asks_for_the_body_of_the_answer() {
    let rule = [("route-uri", r"^/(\w) cachestore:key=${REQUEST_URI},name=$1,gzip=z\,$1,expires=30,code=404,value=v\=1")];
    let (verdict, overrides) = walk(&Table::default(), &rule);
    assert_eq!(verdict, Verdict::Serve);
    let wanted = Store {
        cache: b"a".to_vec(),
        key: b"/a,b".to_vec(),
        gzip_key: Some(b"z,a".to_vec()),
        value: Some(b"v=1".to_vec()),
        status: Some(404),
        expires_s: 30,
    };
    assert_eq!(overrides.stores, [wanted]);
    assert_eq!([200, 404, 500].map(|status| overrides.stores[0].takes(status)), [true, true, false]);
}

#[test]
fn rules_set_count_and_read_items() {
    let table = Table::default();
    let rules = [
        ("route-if-not", "incache:key=a addvar:ABSENT=1"),
        ("route-run", "cacheset:key=a,value=x${REQUEST_URI},expires=5"),
        ("route-run", "cacheset:key=a,value=other"),
        ("route-if", "incache:key=a,name= cachevar:key=a,var=A"),
        ("route-run", "cacheinc:key=n,value=5"),
        ("route-run", "cacheinc:key=n"),
        ("route-run", "cachemul:key=n"),
        ("route-run", "cachedec:key=n,value=3"),
        ("route-run", "cachediv:key=n"),
        ("route-run", "cachevar:key=n,var=N,num=1"),
        ("route-run", "cachevar:key=a,var=NO_NUMBER,as_num=1"),
        ("route-run", "cachevar:key=none,var=NONE"),
    ];
    let (_, overrides) = walk(&table, &rules);
    let text = |name: &str| overrides.value(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned());
    let values = ["ABSENT", "A", "N", "NO_NUMBER", "NONE"].map(|name| text(name).unwrap_or_default());
    assert_eq!(values, ["1", "x/a,b", "4", "0", ""]);
    assert_eq!(table.writes.borrow()[..2], [5, 0]);
}

#[test]
fn a_wrong_argument_is_named() {
    for (option, text, is_fatal, message) in [
        ("route-run", "cache:name=x", true, "`cache:` has no `key`"),
        ("route-run", "cache:key=x,name=far@10.0.0.1:3031", true, "`name=far@10.0.0.1:3031` is a cache of another server"),
        ("route-run", "cache:key=x,type=text/html", false, "`type=text/html` in `cache:` has no effect"),
        ("route-run", "cache:key=x,content_type=a\tb", true, "a type and a coding can't contain control characters"),
        ("route-run", "cachestore:key=x,expires=soon", true, "`expires=soon` in `cachestore:` is not a time"),
        ("route-run", "cache-store:key=x,status=OK", true, "`status=OK` in `cachestore:` is not a status"),
        ("route-run", "cacheset:key=x", true, "`cacheset:` has no `value`"),
        ("route-run", "cachevar:key=x", true, "`cachevar:` has no `var`"),
        ("route-run", "cacheinc:value=1", true, "`cacheinc:` has no `key`"),
        ("route-run", "cache-continue:key=x", true, "the action `cache-continue` is known, but not supported yet"),
        ("route-if", "incache:name=x last:", true, "`incache:` has no `key`"),
        ("response-route-run", "cache:key=x", true, "the action `cache` can't be used in a response-route"),
    ] {
        let (_, mistakes) = compile(&[(option, text)]);
        assert!(mistakes.iter().any(|mistake| mistake.message.contains(message) && mistake.is_fatal == is_fatal), "{mistakes:?}");
    }
}

#[test]
fn the_caches_that_rules_name_are_known() {
    let rules = [
        ("route-label", "first"),
        ("route-run", "cache:key=x,name=pages"),
        ("route-run", "cachestore:key=x,name=${HTTP_HOST}"),
        ("response-route-run", "cachestore:key=x"),
        ("route-if", "incache:key=x,name=seen cacheinc:key=x,name=pages"),
    ];
    let routes = compile(&rules).0.unwrap();
    let names: Vec<(usize, &str)> = routes.needs.caches.iter().map(|(rule, name)| (*rule, name.as_str())).collect();
    assert_eq!(names, [(1, "pages"), (3, ""), (4, "seen"), (4, "pages")]);
}
