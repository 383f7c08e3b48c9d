//! The table of a life cycle: which state follows a state at an event. One table decides, and is printed for the documentation.
//! It does not have states or events of its own. The master runs it.

use std::fmt::Debug;

/// A table with a row for each state, and in it the next state for each of the events.
#[derive(Debug)]
pub struct LifeTable<S: 'static, E, const EVENTS: usize> {
    /// The events, in the order of the columns.
    pub events: [E; EVENTS],
    /// Each state, and what follows it. An event without new information leaves the state as it is.
    pub rows: &'static [(S, [S; EVENTS])],
}

impl<S: Copy + PartialEq + Debug, E: Copy + PartialEq + Debug, const EVENTS: usize> LifeTable<S, E, EVENTS> {
    /// Returns the state after an event. Tests of each table check that it is complete; a state without a row would stay.
    pub fn after(&self, state: S, event: E) -> S {
        let row = self.rows.iter().find(|(of_row, _)| *of_row == state);
        let column = self.events.iter().position(|known| *known == event);
        row.zip(column).and_then(|((_, next), column)| next.get(column)).copied().unwrap_or(state)
    }

    /// Returns the table as Markdown, for the documentation. An empty cell leaves the state as it is.
    pub fn as_markdown(&self) -> String {
        let heads: String = self.events.iter().map(|event| format!(" {event:?} |")).collect();
        let mut page = format!("| state |{heads}\n|---|{}\n", "---|".repeat(EVENTS));
        for (state, next) in self.rows {
            let cell = |after: &S| if after == state { " |".to_owned() } else { format!(" {after:?} |") };
            page += &format!("| {state:?} |{}\n", next.iter().map(cell).collect::<String>());
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_the_next_state_and_what_the_table_lacks_changes_nothing() {
        let table = LifeTable { events: ['x', 'y'], rows: &[(1, [2, 1]), (2, [2, 3])] };
        assert_eq!([table.after(1, 'x'), table.after(1, 'y'), table.after(2, 'y')], [2, 1, 3]);
        assert_eq!([table.after(3, 'x'), table.after(1, 'z')], [3, 1]);
        assert_eq!(table.as_markdown(), "| state | 'x' | 'y' |\n|---|---|---|\n| 1 | 2 | |\n| 2 | | 3 |\n");
    }
}
