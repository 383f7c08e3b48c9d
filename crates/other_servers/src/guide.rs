//! The tables of the guides for users of other servers: the equivalent of each flag of a server, generated from the rows. It
//! formats Markdown and opens nothing.

use bolide_options::row::Argument;
use bolide_options::server::Server;

use super::row::{Meaning, ServerSetting};
use super::{flags, unlisted};

/// A setting that Bolide accepts and ignores.
const NO_EFFECT: &str = "no effect";

/// Returns the table of a server.
pub fn table(server: Server) -> String {
    let is_listed = |flag: &&ServerSetting| !unlisted::FLAGS.iter().any(|other| other.flag == flag.flag);
    let listed = flags().filter(is_listed).filter(|flag| flag.servers.contains(&server) && !flag.flag.is_empty());
    let mut rows: Vec<String> = listed.map(|flag| row(flag, server)).collect();
    rows.sort_unstable_by_key(|row| row.split("`--").nth(1).unwrap_or_default().to_owned());
    format!("| {} | option in a file | the flag is | |\n|---|---|---|---|\n{}\n", server.command(), rows.join("\n"))
}

fn row(flag: &ServerSetting, server: Server) -> String {
    let letter = flag.letter.filter(|(_, servers)| servers.contains(&server));
    let letter = letter.map(|(letter, _)| format!("`-{letter}`, ")).unwrap_or_default();
    let (here, why) = match flag.meaning {
        _ if !flag.here.is_empty() => (flag.here.to_owned(), ""),
        Meaning::Same | Meaning::Listed(_) | Meaning::Worded(..) => ("the same".to_owned(), ""),
        Meaning::Option(name) if flag.argument == Argument::None => (format!("`{name} = true`"), ""),
        Meaning::Option(name) => (format!("`{name}`"), ""),
        Meaning::Fixed(pairs) => {
            let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("`{name} = {value}`")).collect();
            (pairs.join(", "), "")
        }
        Meaning::Made(_, made) | Meaning::Kept(_, _, made) => {
            (made.replace("nothing;", "nothing:").replace("nothing", NO_EFFECT), "")
        }
        Meaning::Done(why) => ("not needed".to_owned(), why),
        Meaning::Nothing(why) => (NO_EFFECT.to_owned(), why),
        Meaning::Refused(advice) | Meaning::Taken(_, advice) => (String::new(), advice),
    };
    let is_first = super::long(None, flag.flag).is_some_and(|first| std::ptr::eq(first, flag));
    let typed = match flag.meaning {
        _ if !is_first => "read as another server's",
        Meaning::Refused(_) => "an error",
        Meaning::Taken(..) => "read as uWSGI's",
        _ => "accepted",
    };
    let says: Vec<&str> = [why, flag.says].into_iter().filter(|text| !text.is_empty()).collect();
    format!("| {letter}`--{}` | {here} | {typed} | {} |", flag.flag, says.join("; ").replace('|', "\\|"))
}

/// Inserts the tables into a page, between the lines that mark their places.
pub fn with_tables(page: &str) -> String {
    let mut made = page.to_owned();
    for server in Server::ALL {
        let (begin, end) = (format!("<!-- flags of {} -->\n", server.command()), "<!-- end of flags -->");
        let Some((before, rest)) = made.split_once(&begin) else { continue };
        let Some((_, after)) = rest.split_once(end) else { continue };
        made = format!("{before}{begin}{}{end}{after}", table(server));
    }
    made
}
