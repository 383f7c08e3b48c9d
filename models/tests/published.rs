//! Reads of ticket keys by workers while the master publishes new ones.

use bolide_models::explore;
use bolide_models::published::Published;
use loom::sync::Arc;

/// Enough to tell whole versions from torn ones.
const WORDS: usize = 2;
/// The smallest number with which a place that may have been read is overwritten.
const VERSIONS: u64 = 3;

#[test]
fn no_reader_sees_half_of_a_version_or_nothing_where_something_was_published() {
    explore(|| {
        let published = Arc::new(Published::<WORDS>::default());
        published.publish(&[1; WORDS]);
        let writer = loom::thread::spawn({
            let published = published.clone();
            move || (2..=VERSIONS).for_each(|version| published.publish(&[version; WORDS]))
        });
        let seen = published.read();
        assert!(seen.is_some_and(|words| words[0] == words[1] && (1..=VERSIONS).contains(&words[0])), "{seen:?}");
        assert!(writer.join().is_ok());
        assert_eq!(published.read(), Some([VERSIONS; WORDS]));
    });
}
