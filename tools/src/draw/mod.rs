//! `paceline draw`: any row for any number of ranks, as text and as a picture.

mod arguments;
mod messages;
mod picture;

use std::fmt::Write;

use paceline_comm::Collective;
use paceline_comm::algorithm::{ROWS, Row, row, rows_for};
use paceline_comm::schedule::text::draw;
use paceline_comm::schedule::{Groups, Program, Rank};

pub use arguments::Arguments;

/// The most ranks that are drawn as text.
const RANKS_MAX: u32 = 1024;
/// The most ranks, and messages, of a picture.
const PICTURE_RANKS_MAX: u32 = 64;
const PICTURE_MESSAGES_MAX: usize = 20_000;

/// A row for some ranks, ready to be drawn.
struct Drawing {
    row: &'static Row,
    /// The rank at each place, those of a host one behind the other.
    order: Vec<Rank>,
    /// How many ranks each host has; one number where nothing is said of hosts.
    hosts: Vec<u32>,
    root: Rank,
    /// In the order of ranks.
    programs: Vec<Program>,
}

impl Drawing {
    fn of(arguments: &Arguments) -> Result<Drawing, String> {
        let row = named(arguments.collective, arguments.row.as_deref())?;
        let n = arguments.n()?;
        if n > RANKS_MAX {
            return Err(format!("{n} ranks are too many to be read: at most {RANKS_MAX} are drawn"));
        }
        if !(row.fits)(n) {
            return Err(format!("{} {} doesn't fit {n} ranks", row.collective, row.name));
        }
        let root = arguments.root;
        if root >= n {
            return Err(format!("--root {root} is none of {n} ranks, which are numbered from 0"));
        }
        if root > 0 && !row.collective.has_root() {
            return Err(format!("{} has no root", row.collective));
        }
        let (hosts, order) = (arguments.host_sizes(n), arguments.order(n)?);
        let groups = if hosts.len() > 1 && hosts.len() < n as usize {
            Groups::of_sizes(&hosts)
        } else if hosts.len() > 1 {
            Groups::flat(n)
        } else {
            Groups::assumed(n)
        };
        if !order.is_sorted() && !row.may_be_placed() {
            return Err(format!(
                "{} {} can't be put in another order: it moves runs of blocks, or folds in the order of ranks",
                row.collective, row.name
            ));
        }
        let programs = if order.is_sorted() {
            (0..n).map(|me| row.program_in(&groups, me, root)).collect()
        } else {
            let place = |rank: Rank| order.iter().position(|other| *other == rank).expect("all are there") as Rank;
            let root = if row.collective.has_root() { place(root) } else { 0 };
            let program = |me| row.program_in(&groups, place(me), root).placed(row.collective, &order);
            (0..n).map(program).collect()
        };
        Ok(Drawing { row, order, hosts, root, programs })
    }

    fn title(&self) -> String {
        let n = self.programs.len();
        let mut title =
            format!("{} {}, {n} {}", self.row.collective, self.row.name, if n == 1 { "rank" } else { "ranks" });
        if self.row.collective.has_root() {
            write!(title, ", root {}", self.root).expect("strings take everything");
        }
        if self.hosts.len() > 1 {
            let hosts: Vec<String> = self.hosts.iter().map(u32::to_string).collect();
            write!(title, ", hosts {}", hosts.join("+")).expect("strings take everything");
        }
        title
    }
}

/// The row of that name, or which ones there are.
fn named(collective: Option<Collective>, name: Option<&str>) -> Result<&'static Row, String> {
    let collective = collective.expect("required unless rows are listed");
    let names = || rows_for(collective).map(|row| row.name).collect::<Vec<_>>().join(", ");
    if collective.is_message() {
        return Err(format!("{collective} is a message between two ranks, and has no rows"));
    }
    let name = name.ok_or_else(|| format!("which row of {collective}? There are: {}", names()))?;
    row(collective, name).ok_or_else(|| format!("{collective} has no row {name}. There are: {}", names()))
}

/// What is to be printed; with `--picture`, once the file is written.
///
/// # Errors
///
/// There is no such row, it doesn't fit such ranks, they are too many, or the file can't be written.
pub fn text(arguments: &Arguments) -> Result<String, String> {
    if arguments.list {
        return Ok(list());
    }
    let drawing = Drawing::of(arguments)?;
    let Some(path) = &arguments.picture else { return Ok(draw(&drawing.programs)) };
    let n = drawing.programs.len();
    if n > PICTURE_RANKS_MAX as usize {
        return Err(format!(
            "{n} ranks are too many for a picture, which has at most {PICTURE_RANKS_MAX}; without --picture they are drawn as \
             text"
        ));
    }
    let svg = picture::svg(&drawing)?;
    crate::picture::write(&svg, path)?;
    Ok(format!("{}: {}\n", path.display(), drawing.title()))
}

/// The collectives and their rows.
fn list() -> String {
    let mut text = String::new();
    for chunk in ROWS.chunk_by(|a, b| a.collective == b.collective) {
        let names: Vec<&str> = chunk.iter().map(|row| row.name).collect();
        writeln!(text, "{:<15} {}", chunk[0].collective.name(), names.join(" ")).expect("strings take everything");
    }
    text
}
