//! A row as a picture: ranks across, those of a host on one ground, and time downwards.

use paceline_comm::schedule::{Rank, Span, Step};

use super::messages::{Message, messages, rows};
use super::{Drawing, PICTURE_MESSAGES_MAX};
use crate::svg::{Picture, Point};

/// How far ranks and rows are apart, and what is kept free around them.
const COLUMN: f64 = 72.0;
const ROW: f64 = 62.0;
/// Up to how many rows, and how high, rows are higher where there are many ranks, so that long arrows aren't all but level.
const HIGH_ROWS_MAX: usize = 12;
const HIGH_ROW: f64 = 140.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 118.0;
const GAP: f64 = 26.0;
/// How far below a row's upper edge things are sent, and above its lower edge received.
const SENT: f64 = 10.0;
const RECEIVED: f64 = 16.0;
const MARK: f64 = 5.5;

/// Where everything goes.
struct Page {
    /// Of each rank.
    x: Vec<f64>,
    /// Of each rank, its host.
    host_of: Vec<usize>,
    n_rows: usize,
    row: f64,
    right: f64,
}

impl Page {
    fn of(drawing: &Drawing, n_rows: usize) -> Page {
        let n = drawing.order.len();
        let (mut x, mut host_of) = (vec![0.0; n], vec![0; n]);
        let mut ranks = drawing.order.iter();
        let mut next = LEFT + COLUMN / 2.0;
        for (host, size) in drawing.hosts.iter().enumerate() {
            for rank in ranks.by_ref().take(*size as usize) {
                (x[*rank as usize], host_of[*rank as usize]) = (next, host);
                next += COLUMN;
            }
            next += GAP;
        }
        let row = if n_rows > HIGH_ROWS_MAX { ROW } else { (44.0 + 5.0 * n as f64).clamp(ROW, HIGH_ROW) };
        Page { x, host_of, n_rows, row, right: next - GAP - COLUMN / 2.0 }
    }

    fn bottom(&self) -> f64 {
        self.y(self.n_rows)
    }

    fn is_far(&self, message: &Message) -> bool {
        self.host_of[message.from as usize] != self.host_of[message.to as usize]
    }

    /// The upper edge of a row.
    fn y(&self, row: usize) -> f64 {
        TOP + self.row * row as f64
    }

    fn sent(&self, rank: Rank, row: usize) -> Point {
        [self.x[rank as usize], self.y(row) + SENT]
    }

    fn received(&self, rank: Rank, row: usize) -> Point {
        [self.x[rank as usize], self.y(row + 1) - RECEIVED]
    }
}

/// The picture.
///
/// # Errors
///
/// It has too many messages.
pub(super) fn svg(drawing: &Drawing) -> Result<String, String> {
    let messages = messages(&drawing.programs)?;
    if messages.len() > PICTURE_MESSAGES_MAX {
        return Err(format!(
            "{} messages are too many for a picture, which has at most {PICTURE_MESSAGES_MAX}; without --svg they are drawn \
             as text",
            messages.len()
        ));
    }
    let rows = rows(&drawing.programs, &messages);
    let n_rows = rows.iter().flatten().max().map_or(0, |last| last + 1);
    let page = Page::of(drawing, n_rows);
    let width = (page.right + 24.0).max(24.0 + 9.5 * drawing.title().len() as f64).max(660.0);
    let mut picture = Picture::new([width, page.bottom() + 76.0], &drawing.title());
    heading(&mut picture, drawing, &page, &messages);
    ground(&mut picture, drawing, &page);
    for message in &messages {
        arrow(&mut picture, &page, message, &rows);
    }
    for (program, rows) in drawing.programs.iter().zip(&rows) {
        for (steps, row) in program.rounds().zip(rows) {
            marks(&mut picture, &page, program.me, *row, steps);
        }
    }
    legend(&mut picture, &page);
    Ok(picture.finish())
}

fn heading(picture: &mut Picture, drawing: &Drawing, page: &Page, messages: &[Message]) {
    picture.text("title", [20.0, 28.0], &drawing.title());
    picture.text("faint", [20.0, 47.0], drawing.row.summary);
    let far = messages.iter().filter(|message| page.is_far(message)).count();
    let between = if drawing.hosts.len() > 1 { format!(", {far} of them between hosts") } else { String::new() };
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (rounds, messages) = (count(page.n_rows, "round"), count(messages.len(), "message"));
    let counted = format!("{rounds}, {messages}{between}, {}", count(drawing.programs[0].chunks as usize, "chunk"));
    picture.text("faint", [20.0, 64.0], &counted);
}

fn ground(picture: &mut Picture, drawing: &Drawing, page: &Page) {
    let mut ranks = drawing.order.iter();
    for (host, size) in drawing.hosts.iter().enumerate() {
        let of_host: Vec<Rank> = ranks.by_ref().take(*size as usize).copied().collect();
        let x = page.x[of_host[0] as usize] - COLUMN / 2.0;
        let width = COLUMN * f64::from(*size);
        picture.rectangle("ground", [x, 76.0], [width, page.bottom() - 76.0 + 34.0]);
        if drawing.hosts.len() > 1 {
            picture.text("faint", [x + 6.0, 89.0], &format!("host {host}"));
        }
    }
    for row in 0..page.n_rows {
        let y = page.y(row);
        picture.line("rule", [LEFT - 44.0, y], [page.right, y]);
        picture.text("faint end", [LEFT - 16.0, y + page.row / 2.0 + 4.0], &row.to_string());
    }
    picture.line("rule", [LEFT - 44.0, page.bottom()], [page.right, page.bottom()]);
    for (rank, &x) in page.x.iter().enumerate() {
        picture.line("rule", [x, TOP], [x, page.bottom()]);
        for y in [104.0, page.bottom() + 16.0] {
            let root = drawing.row.collective.has_root() && rank == drawing.root as usize;
            picture.circle(if root { "node two" } else { "node" }, [x, y], 11.0);
            picture.text("middle", [x, y + 4.3], &rank.to_string());
        }
    }
}

fn arrow(picture: &mut Picture, page: &Page, message: &Message, rows: &[Vec<usize>]) {
    let Message { from, to, sent_in, received_in, source, receive } = message;
    let class = if page.is_far(message) { "two" } else { "one" };
    let start = page.sent(*from, rows[*from as usize][*sent_in]);
    let [x, y] = page.received(*to, rows[*to as usize][*received_in]);
    let (dx, dy) = (x - start[0], y - start[1]);
    let length = dx.hypot(dy).max(1.0);
    let end = [x - dx / length * MARK, y - dy / length * MARK];
    let about = format!("rank {from} sends {source} to rank {to}, there: {receive}");
    picture.arrow(class, start, end, &about);
}

/// What a rank does in a row: a point where it sends, a mark where it receives or works alone, and what that is of.
fn marks(picture: &mut Picture, page: &Page, me: Rank, row: usize, steps: &[Step]) {
    if steps.iter().any(|step| matches!(step, Step::Send { .. })) {
        picture.circle("node", page.sent(me, row), 2.6);
    }
    let [x, y] = page.received(me, row);
    let is_fold = |step: &Step| matches!(step, Step::RecvReduce { .. } | Step::Reduce { .. });
    let mut comes: Vec<Step> = steps.iter().copied().filter(|step| !matches!(step, Step::Send { .. })).collect();
    if comes.is_empty() {
        return;
    }
    comes.sort_by_key(|step| matches!(step, Step::Copy { .. }));
    let folds = comes.iter().any(is_fold);
    if comes.iter().all(|step| matches!(step, Step::Copy { .. })) {
        copy_mark(picture, [x, y]);
    } else {
        receive_mark(picture, [x, y], folds);
    }
    let all: Vec<String> = comes.iter().map(label).collect();
    let room = COLUMN - 2.0 * MARK - 12.0;
    let (first, last) = (&all[0], all.len() - 1);
    let text = [all.join(" "), format!("{first} +{last}")].into_iter().find(|text| Picture::width_of(text) <= room);
    if let Some(text) = text {
        picture.text("halo", [x + MARK + 3.0, y + 11.0], &text);
    }
}

fn receive_mark(picture: &mut Picture, [x, y]: Point, folds: bool) {
    picture.circle("node", [x, y], MARK);
    if folds {
        picture.line("node", [x - MARK, y], [x + MARK, y]);
        picture.line("node", [x, y - MARK], [x, y + MARK]);
    }
}

fn copy_mark(picture: &mut Picture, [x, y]: Point) {
    picture.rectangle("node", [x - MARK, y - MARK], [2.0 * MARK, 2.0 * MARK]);
}

/// The chunks that a step leaves something in.
fn label(step: &Step) -> String {
    let chunks = |span: Span| match span.count {
        1 => span.like.to_string(),
        count => format!("{}-{}", span.like, span.like + count - 1),
    };
    match *step {
        Step::Send { source, .. } => chunks(source),
        Step::Recv { target, .. }
        | Step::RecvReduce { target, .. }
        | Step::Copy { target, .. }
        | Step::Reduce { target, .. } => chunks(target),
    }
}

fn legend(picture: &mut Picture, page: &Page) {
    let y = page.bottom() + 54.0;
    let mut x = 20.0;
    let mut entry = |picture: &mut Picture, text: &str, draw: &dyn Fn(&mut Picture, f64)| {
        draw(picture, x);
        picture.text("faint", [x + 34.0, y + 4.3], text);
        x += 34.0 + Picture::width_of(text) + 16.0;
    };
    let line =
        |class: &'static str| move |picture: &mut Picture, x: f64| picture.arrow(class, [x, y], [x + 28.0, y], "");
    if page.host_of.iter().any(|host| *host > 0) {
        entry(picture, "within a host", &line("one"));
        entry(picture, "between hosts", &line("two"));
    } else {
        entry(picture, "a message", &line("one"));
    }
    entry(picture, "3: chunk 3 received", &|picture, x| receive_mark(picture, [x + 20.0, y], false));
    entry(picture, "folded", &|picture, x| receive_mark(picture, [x + 20.0, y], true));
    entry(picture, "copied", &|picture, x| copy_mark(picture, [x + 20.0, y]));
}
