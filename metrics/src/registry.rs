//! The registry: families by name, series by label values.
//!
//! Registration and the search for a handle lock; whoever counts often keeps the handle. Two registrations under one
//! name get the same family if they describe it alike and stop the process otherwise: that is our own mistake.
//!
//! Invariant: names and label names are valid for Prometheus; names of counters end in `_total` (OpenMetrics demands
//! it); families and series have one order in every scrape: that of their names and values.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::label::{OTHER, cut};
use crate::series::{Counter, Gauge, Histogram, Unit};
use crate::text::{self, Format};

/// Series per family unless its description says otherwise. At the bound: counted in the series [`OTHER`].
pub const SERIES_MAX: usize = 10_000;

/// What a family is: said once, where it is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
    pub(crate) unit: Unit,
    series_max: usize,
}

impl Description {
    /// A family without labels, shown as recorded.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, labels: &[], unit: Unit::One, series_max: SERIES_MAX }
    }

    /// With these label names, in this order.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// Recorded in a part of the unit that is shown.
    #[must_use]
    pub const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// With at most this many series beside [`OTHER`].
    #[must_use]
    pub const fn series_max(mut self, series_max: usize) -> Self {
        self.series_max = series_max;
        self
    }

    fn check(&self) {
        assert!(is_name(self.name), "{:?} is no name of a metric", self.name);
        for label in self.labels {
            assert!(is_name(label) && !label.contains(':') && *label != "le", "{label:?} is no name of a label");
        }
    }
}

fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.chars().all(word) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// Series of one family, by label values.
pub(crate) struct Family<S> {
    pub(crate) description: Description,
    pub(crate) bounds: &'static [u64],
    series: Mutex<BTreeMap<Box<[Box<str>]>, S>>,
}

impl<S: Clone> Family<S> {
    fn new(description: Description, bounds: &'static [u64]) -> Arc<Self> {
        Arc::new(Self { description, bounds, series: Mutex::new(BTreeMap::new()) })
    }

    /// The series with these values, made if there is room, else the one that takes the rest.
    fn find(&self, values: &[&str], new: impl FnOnce() -> S) -> S {
        assert_eq!(values.len(), self.description.labels.len(), "{}: one value per label", self.description.name);
        let mut series = self.lock();
        let mut key: Box<[Box<str>]> = values.iter().map(|value| cut(value).into()).collect();
        if let Some(found) = series.get(&key) {
            return found.clone();
        }
        let other = self.other_key();
        if series.len() - usize::from(series.contains_key(&other)) >= self.description.series_max {
            key = other;
        }
        series.entry(key).or_insert_with(new).clone()
    }

    fn other_key(&self) -> Box<[Box<str>]> {
        self.description.labels.iter().map(|_| OTHER.into()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[Box<str>]>, S>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[Box<str>], &S)) {
        for (values, series) in self.lock().iter() {
            visit(values, series);
        }
    }

    /// Takes `series` out and gives it to `absorb` together with the series that takes the rest. `false`: someone else
    /// still holds a handle (more `holders` than the registry and the caller), and nothing changed.
    fn fold(
        &self,
        is_this: impl Fn(&S) -> bool,
        holders: impl FnOnce() -> usize,
        new: impl FnOnce() -> S,
        absorb: impl FnOnce(&S),
    ) -> bool {
        let mut series = self.lock();
        let other = self.other_key();
        let found = series.iter().find(|(_, held)| is_this(held)).map(|(key, _)| key.clone());
        let Some(key) = found.filter(|key| *key != other && holders() <= 2) else { return false };
        series.remove(&key);
        absorb(series.entry(other).or_insert_with(new));
        true
    }
}

macro_rules! family {
    ($(#[$doc:meta])* $name:ident, $handle:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(pub(crate) Arc<Family<$handle>>);
    };
}

family!(
    /// Counters of one name.
    Counters,
    Counter
);
family!(
    /// Gauges of one name.
    Gauges,
    Gauge
);
family!(
    /// Histograms of one name, all with the same bounds.
    Histograms,
    Histogram
);

impl Counters {
    /// The counter with these label values (one per label, in the order of the description).
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Counter {
        self.0.find(values, Counter::new)
    }

    /// Ends a series at once and adds its total to the series [`OTHER`], so that the sum over the family does not
    /// change. Gives the handle back, with nothing changed, while another handle of the series exists: what that one
    /// counted later would be lost.
    pub fn fold(&self, counter: Counter) -> Result<(), Counter> {
        // Counted under the lock: nobody can take a new handle between the count and the end of the series.
        let holders = || Arc::strong_count(&counter.0);
        let is_this = |held: &Counter| Arc::ptr_eq(&held.0, &counter.0);
        let done = self.0.fold(is_this, holders, Counter::new, |other| other.add(counter.value()));
        if done { Ok(()) } else { Err(counter) }
    }
}

impl Gauges {
    /// The gauge with these label values.
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Gauge {
        self.0.find(values, Gauge::new)
    }

    /// Ends the series with these values: it is gone from the next scrape (a deleted partition has no lag). A gauge
    /// has no total, so nothing is folded; a handle that someone still holds is shown nowhere.
    pub fn remove(&self, values: &[&str]) {
        let key: Box<[Box<str>]> = values.iter().map(|value| cut(value).into()).collect();
        self.0.lock().remove(&key);
    }
}

impl Histograms {
    /// The histogram with these label values.
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Histogram {
        let bounds = self.0.bounds;
        self.0.find(values, || Histogram::new(bounds))
    }

    /// Ends a series as [`Counters::fold`] does.
    pub fn fold(&self, histogram: Histogram) -> Result<(), Histogram> {
        let holders = || Arc::strong_count(&histogram.0);
        let is_this = |held: &Histogram| Arc::ptr_eq(&held.0, &histogram.0);
        let new = || Histogram::new(self.0.bounds);
        let done = self.0.fold(is_this, holders, new, |other| other.absorb(&histogram));
        if done { Ok(()) } else { Err(histogram) }
    }
}

#[derive(Clone)]
pub(crate) enum AnyFamily {
    Counters(Counters),
    Gauges(Gauges),
    Histograms(Histograms),
}

/// All families of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<BTreeMap<&'static str, AnyFamily>>>);

impl Registry {
    /// A registry without families.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers counters. Their name ends in `_total`.
    pub fn counters(&self, description: Description) -> Counters {
        assert!(description.name.ends_with("_total"), "{}: names of counters end in _total", description.name);
        match self.register(&description, || AnyFamily::Counters(Counters(Family::new(description, &[])))) {
            AnyFamily::Counters(family) if family.0.description == description => family,
            _ => panic!("{} is registered twice and differently", description.name),
        }
    }

    /// Registers gauges.
    pub fn gauges(&self, description: Description) -> Gauges {
        match self.register(&description, || AnyFamily::Gauges(Gauges(Family::new(description, &[])))) {
            AnyFamily::Gauges(family) if family.0.description == description => family,
            _ => panic!("{} is registered twice and differently", description.name),
        }
    }

    /// Registers histograms with these upper bounds of buckets (growing, in the recorded unit).
    pub fn histograms(&self, description: Description, bounds: &'static [u64]) -> Histograms {
        assert!(bounds.is_sorted_by(|a, b| a < b), "{}: bounds of buckets grow", description.name);
        match self.register(&description, || AnyFamily::Histograms(Histograms(Family::new(description, bounds)))) {
            AnyFamily::Histograms(family) if family.0.description == description && family.0.bounds == bounds => family,
            _ => panic!("{} is registered twice and differently", description.name),
        }
    }

    /// Appends all series in Prometheus' text format 0.0.4 (`text/plain; version=0.0.4; charset=utf-8`).
    pub fn render(&self, out: &mut String) {
        self.render_as(Format::Prometheus, out);
    }

    /// Appends all series in the given format.
    pub fn render_as(&self, format: Format, out: &mut String) {
        // The families are cloned (reference counts) so that a slow scrape does not hold up a registration.
        let families: Vec<AnyFamily> =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        text::write_all(&families, format, out);
    }

    fn register(&self, description: &Description, new: impl FnOnce() -> AnyFamily) -> AnyFamily {
        description.check();
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.entry(description.name).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCHES: Description = Description::new("fetches_total", "Fetches.").labels(&["client_id"]).series_max(2);

    #[test]
    fn one_name_is_one_family_and_one_set_of_values_one_series() {
        let registry = Registry::new();
        registry.counters(FETCHES).with(&["a"]).increment();
        registry.clone().counters(FETCHES).with(&["a"]).add(2);
        assert_eq!(registry.counters(FETCHES).with(&["a"]).value(), 3);
    }

    #[test]
    #[should_panic(expected = "registered twice and differently")]
    fn one_name_with_two_meanings_stops_the_process() {
        let registry = Registry::new();
        registry.gauges(Description::new("fetches_total", "Fetches."));
        registry.counters(FETCHES);
    }

    #[test]
    fn beyond_the_bound_everything_counts_as_other() {
        let family = Registry::new().counters(FETCHES);
        for client in ["a", "b", "c", "d", "a"] {
            family.with(&[client]).increment();
        }
        assert_eq!(family.with(&["a"]).value(), 2);
        assert_eq!(family.with(&[OTHER]).value(), 2);
        assert_eq!(family.with(&["b"]).value(), 1);
    }

    #[test]
    fn folding_keeps_the_sum_and_makes_room() {
        let family = Registry::new().counters(FETCHES);
        family.with(&["b"]).add(5);
        let a = family.with(&["a"]);
        a.add(7);
        let again = a.clone();
        let a = family.fold(a).expect_err("a second handle exists");
        drop(again);
        family.fold(a).expect("the last handle");
        assert_eq!(family.with(&[OTHER]).value(), 7);
        family.with(&["c"]).increment();
        assert_eq!(family.with(&["c"]).value(), 1);
        let other = family.with(&[OTHER]);
        assert!(family.fold(other).is_err(), "the rest cannot be folded into itself");
    }

    #[test]
    fn folded_histograms_keep_their_counts() {
        let family = Registry::new().histograms(Description::new("wait", "Wait.").labels(&["client_id"]), &[1, 2]);
        let a = family.with(&["a"]);
        a.record(2);
        family.fold(a).expect("the only handle");
        let other = family.with(&[OTHER]);
        assert_eq!((other.count(), other.sum()), (1, 2));
    }
}
