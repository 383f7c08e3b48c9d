//! The vassals of an emperor, as the looks at its places find them: which there are, and which wait for their first connection.
//! It starts and stops none of them. The emperor runs it.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};

use bolide_contract::emperor::Emperor;
use bolide_supervision::log_sink;
use bolide_supervision::text::printable;

use crate::demand::{self, Whose};
use crate::launch::{self, Origin};
use crate::places::{Found, Look};
use crate::vassal::Vassal;

/// All vassals, the oldest first.
#[derive(Debug, Default)]
pub struct Roster {
    list: Vec<Vassal>,
    /// The number of the last one.
    last_id: u64,
}

impl Deref for Roster {
    type Target = [Vassal];

    fn deref(&self) -> &[Vassal] {
        &self.list
    }
}

impl DerefMut for Roster {
    fn deref_mut(&mut self) -> &mut [Vassal] {
        &mut self.list
    }
}

impl Roster {
    /// Adds a vassal. Returns its place.
    pub fn add(&mut self, name: String, found: Option<Found>) -> usize {
        self.last_id += 1;
        self.list.push(Vassal::new(self.last_id, name, found));
        self.list.len() - 1
    }

    /// Removes the vassal at this place.
    pub fn remove(&mut self, place: usize) -> Vassal {
        self.list.remove(place)
    }

    /// Returns the vassal with this number, if it is still there.
    pub fn by_id(&mut self, id: u64) -> Option<&mut Vassal> {
        self.list.iter_mut().find(|vassal| vassal.id == id)
    }

    /// Notes for each vassal what its file is now.
    pub fn note(&mut self, look: &Look) {
        let Look { found, failed, refused, kept, .. } = look;
        let refused: HashSet<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
        let known: HashSet<(&str, usize)> = found.iter().map(|found| (found.name.as_str(), found.place)).collect();
        let names: HashSet<&str> = found.iter().map(|found| found.name.as_str()).collect();
        for vassal in &mut self.list {
            let place = vassal.found.as_ref().map(|found| found.place);
            // Nothing is known of a place that could not be looked at.
            let is_unknown = place.is_some_and(|place| failed.iter().any(|(number, _)| *number == place));
            let name = vassal.name.as_str();
            let is_there = place.map_or_else(|| names.contains(name), |place| known.contains(&(name, place)));
            let goes_on = vassal.process.is_some() && place.is_some_and(|place| kept.contains(&(vassal.name.clone(), place)));
            if !is_there && !goes_on && (!is_unknown || refused.contains(name)) {
                vassal.found = None;
            }
        }
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, vassal) in self.list.iter().enumerate() {
            places.entry(vassal.name.clone()).or_default().push(place);
        }
        for found in found {
            let of_name = places.entry(found.name.clone()).or_default();
            match of_name.iter().find(|place| self.list[**place].is(found)) {
                Some(place) => {
                    let vassal = &mut self.list[*place];
                    if vassal.found.as_ref().is_some_and(|before| before.stamp != found.stamp) {
                        vassal.pauses.forget();
                        vassal.is_stopped = false;
                    }
                    vassal.found = Some(found.clone());
                }
                None => of_name.push(self.add(found.name.clone(), Some(found.clone()))),
            }
        }
    }

    /// Listens for the first connection of vassals that start on demand. One whose address is another by now ends first.
    pub fn prepare_demand(&mut self, emperor: &Emperor, origin: &Origin) {
        let Some(on_demand) = &emperor.on_demand else { return };
        // One that the emperor before has left has its socket, until it ends.
        let is_left = |vassal: &Vassal| vassal.process.as_ref().is_some_and(|process| process.record.handle.is_some());
        let own = self.list.iter().filter_map(|vassal| Some((vassal.demand.as_ref()?.address.clone(), vassal.name.clone())));
        let mut taken: HashMap<String, String> = own.collect();
        for vassal in self.list.iter_mut().filter(|vassal| !is_left(vassal)) {
            let Some(found) = &vassal.found else { continue };
            let directory = launch::directory_of(emperor, origin, found);
            let prepared =
                demand::address_of(on_demand, found, directory).map_err(|error| error.to_string()).and_then(|address| {
                    if vassal.demand.as_ref().map(|demand| &demand.address) == address.as_ref() {
                        return Ok(());
                    }
                    vassal.demand = None;
                    vassal.leaves_mode = vassal.process.is_some();
                    let Some(address) = address else { return Ok(()) };
                    if let Some(other) = taken.get(&address) {
                        return Err(format!("vassal {other} has its address {}", printable(&address)));
                    }
                    let identity = launch::identity_of(found.owner).map_err(|error| error.to_string())?;
                    vassal.demand = Some(demand::listen(&address, Whose::of(on_demand, identity.as_ref()))?);
                    log_sink::line(&format!("vassal {} waits for its first connection at {address}", vassal.name));
                    Ok(())
                });
            vassal.obstacle = prepared.err();
            if let Some(demand) = &vassal.demand {
                taken.insert(demand.address.clone(), vassal.name.clone());
            }
        }
    }
}
