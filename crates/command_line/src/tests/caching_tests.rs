//! Tests of `cache2` and the related options: what each key means, and what is refused with which advice.

use bolide_contract::services::{SharedCache, WhenFull};

use crate::reading::Reading;
use crate::tests::{Directory, fails, outcome};

/// The caches of these lines, and the messages about them.
fn caches(lines: &str) -> (Vec<SharedCache>, Vec<String>) {
    let directory = Directory::new("caches");
    directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\nmodule = app\n{lines}\n"));
    match outcome(&directory, "uwsgi.ini", &[]) {
        Ok(Reading::Run { settings, diagnostics, .. }) => {
            (settings.services.caches.clone(), diagnostics.iter().map(ToString::to_string).collect())
        }
        other => panic!("{lines}: {other:?}"),
    }
}

fn cache(text: &str) -> SharedCache {
    let (mut caches, said) = caches(&format!("cache2 = {text}"));
    assert_eq!((caches.len(), said), (1, Vec::<String>::new()), "{text}");
    caches.remove(0)
}

#[test]
fn test_a_cache_has_uwsgis_defaults_and_each_key_changes_one() {
    let plain = cache("name=pages,items=100");
    assert_eq!(
        (plain.name.as_str(), plain.items, plain.blocks, plain.block_bytes, plain.key_bytes),
        ("pages", 100, 100, 65_536, 2048)
    );
    assert_eq!((plain.when_full, plain.is_bitmap, plain.store), (WhenFull::Refuse, false, None));
    for items in ["maxitems=7", "max_items=7", "items=7"] {
        assert_eq!(cache(&format!("name=a,{items}")).items, 7);
    }
    let blocks = cache("name=a,items=5,blocksize=100,blocks=50,bitmap=1,key_size=9");
    assert_eq!((blocks.blocks, blocks.block_bytes, blocks.is_bitmap, blocks.key_bytes), (50, 100, true, 9));
    assert_eq!(cache("name=a,items=5,lru=1,clear_on_full=1").when_full, WhenFull::Purge);
    assert_eq!(cache("name=a,items=5,clear_on_full=1").when_full, WhenFull::Clear);
    let rest = cache("name=a,items=5,ignore_full=1,no_expire=1,lastmod=1,math_initial=-3,lazy_expire=1,sweep_on_full=10");
    assert_eq!((rest.ignores_full, rest.never_expires, rest.notes_changes, rest.first_number), (true, true, true, -3));
    let store = cache("name=a,items=5,store=pages.cache,store_sync=30,storedelete=1").store.expect("a file");
    assert!(store.path.is_absolute() && store.path.ends_with("pages.cache"));
    assert_eq!((store.sync_s, store.deletes_foreign), (30, true));
}

#[test]
fn test_the_cache_of_the_option_cache_is_the_first_one_and_common_options_reach_the_others() {
    let lines =
        "cache2 = name=a,items=5,store=a.cache\ncache = 9\ncache-blocksize = 100\ncache-store-sync = 20\ncache-no-expire = true";
    let (caches, said) = caches(lines);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!((caches[0].name.as_str(), caches[0].items, caches[0].block_bytes), ("default", 9, 100));
    assert_eq!((caches[1].name.as_str(), caches[1].block_bytes), ("a", 65_536));
    assert_eq!(caches[1].store.as_ref().map(|store| store.sync_s), Some(20));
    assert!(caches.iter().all(|cache| cache.never_expires));
}

#[test]
fn test_what_has_no_effect_is_said() {
    for (lines, words) in [
        ("cache2 = name=a,items=5,hashsize=100", "`hashsize=100` has no effect"),
        ("cache2 = name=a,items=5,hash=murmur2", "`hash=murmur2` has no effect"),
        ("cache2 = name=a,items=5,purge_lro=1", "did you mean `purge_lru`?"),
        ("cache-blocksize = 100", "`cache-blocksize` has no effect without `cache`"),
        ("cache-store = x", "`cache-store` has no effect without `cache`"),
    ] {
        let said = caches(lines).1.join("\n");
        assert!(said.contains(words), "{lines}: {said}");
    }
}

#[test]
fn test_a_cache_that_can_not_be_is_refused_with_what_to_do() {
    let directory = Directory::new("refused-caches");
    for (lines, words) in [
        ("cache2 = name=a", "has no `items`"),
        ("cache2 = items=5", "has no `name`"),
        ("cache2 = name=a,items=0", "`items=0` is not a number from 1 to"),
        ("cache2 = name=a,items=many", "`items=many` is not a number"),
        ("cache2 = name=a,items=5,keysize=65535", "`keysize=65535` is not a number from 1 to 65534"),
        ("cache2 = name=a,items=5,math_initial=x", "`math_initial=x` is not a number"),
        ("cache2 = name=a,items=5,blocks=4", "fewer blocks (4) than items (5)"),
        ("cache2 = name=a@b,items=5", "has an `@`"),
        ("cache2 = name=a,items=5,nodes=127.0.0.1:1", "`nodes` is not supported"),
        ("cache2 = name=a,items=5,sync=127.0.0.1:1", "`sync` is not supported"),
        ("cache2 = name=a,items=5,udp=127.0.0.1:1", "`udp` is not supported"),
        ("cache2 = name=a,items=5\ncache2 = name=a,items=6", "two caches with the name `a`"),
        ("cache2 = name=a,items=1000000000,blocksize=1000000", "GiB of addresses"),
        ("cache = many", "`cache = many` is not a number"),
        ("cache-sync = 127.0.0.1:1", "`cache-sync` is not supported"),
        ("cache-udp-server = 127.0.0.1:1", "`cache-udp-server` is not supported"),
    ] {
        directory.write("uwsgi.ini", format!("[uwsgi]\nhttp = :1\nmodule = app\n{lines}\n"));
        let said = fails(&directory, "uwsgi.ini").join("\n");
        assert!(said.contains(words), "{lines}: {said}");
    }
}
