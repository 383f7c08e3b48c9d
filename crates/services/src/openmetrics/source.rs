//! Where the samples of a page come from: one instance, or several with a label for each. It does not know families by name. The
//! master and the emperor run it.

use crate::family::{Facts, Family, Samples};

/// Makes the samples of families.
pub trait SampleSource {
    /// Returns the label that a family has before its own ones, if there is one. Its value comes first too.
    fn label(&self, family: &Family) -> Option<&'static str>;

    /// Makes the samples of a family.
    fn write(&self, family: &Family, samples: &mut Samples<'_>);
}

impl SampleSource for Facts {
    fn label(&self, _family: &Family) -> Option<&'static str> {
        None
    }

    fn write(&self, family: &Family, samples: &mut Samples<'_>) {
        (family.write)(self, samples);
    }
}
