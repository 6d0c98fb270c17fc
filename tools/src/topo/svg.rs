//! A machine as a picture: boxes within boxes, as parts are within each other.

use std::fmt::Write;

use super::tree::{Branch, Kind};

/// How wide a character is at most, and how high a line, in pixels, at a font size of 12.
const CHARACTER: f64 = 7.3;
const LINE: f64 = 18.0;
/// Between a box and what is in it or beside it.
const GAP: f64 = 6.0;
/// How wide a row of boxes may be before the next begins.
const ROW: f64 = 1100.0;

/// A box with its place relative to the one around it.
struct Frame<'a> {
    branch: &'a Branch,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    within: Vec<Frame<'a>>,
}

/// Draws a tree.
pub(super) fn draw(root: &Branch) -> String {
    let frame = laid(root);
    let (width, height) = (frame.width + 2.0 * GAP, frame.height + 2.0 * GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    paint(&frame, GAP, GAP, &mut text);
    text + "</svg>\n"
}

/// Gives a box and those within it their sizes and places: in rows, from left to right.
fn laid(branch: &Branch) -> Frame<'_> {
    let mut within: Vec<Frame<'_>> = branch.below.iter().map(laid).collect();
    let mut width = branch.line.chars().count() as f64 * CHARACTER + 2.0 * GAP;
    let (mut x, mut y, mut row_height) = (GAP, LINE + GAP, 0.0f64);
    for frame in &mut within {
        let is_first = x <= GAP;
        if !is_first && x + frame.width > ROW {
            (x, y, row_height) = (GAP, y + row_height + GAP, 0.0);
        }
        (frame.x, frame.y) = (x, y);
        x += frame.width + GAP;
        row_height = row_height.max(frame.height);
        width = width.max(x);
    }
    let height = if within.is_empty() { LINE + GAP } else { y + row_height + GAP };
    Frame { branch, x: 0.0, y: 0.0, width, height, within }
}

fn paint(frame: &Frame<'_>, x: f64, y: f64, text: &mut String) {
    let (fill, stroke) = colours(frame.branch.kind);
    let Frame { width, height, .. } = frame;
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
    );
    let _ = write!(text, "<text x=\"{:.1}\" y=\"{:.1}\">", x + GAP, y + LINE - 4.0);
    for char in frame.branch.line.chars() {
        match char {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            char if char.is_control() => text.push('?'),
            char => text.push(char),
        }
    }
    text.push_str("</text>\n");
    frame.within.iter().for_each(|inner| paint(inner, x + inner.x, y + inner.y, text));
}

fn colours(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Machine => ("#ffffff", "#444444"),
        Kind::Package => ("#eceff1", "#78909c"),
        Kind::Node => ("#fff8e1", "#ffb300"),
        Kind::Cache => ("#ffffff", "#bdbdbd"),
        Kind::Device => ("#e3f2fd", "#64b5f6"),
        Kind::Gpu => ("#e8f5e9", "#43a047"),
        Kind::Nic => ("#fce4ec", "#d81b60"),
        Kind::Remark => ("none", "none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(frame: &Frame<'_>) {
        for (at, inner) in frame.within.iter().enumerate() {
            assert!(GAP <= inner.x && inner.x + inner.width + GAP <= frame.width + 0.01, "{}", inner.branch.line);
            assert!(LINE <= inner.y && inner.y + inner.height + GAP <= frame.height + 0.01, "{}", inner.branch.line);
            for other in &frame.within[..at] {
                let apart = other.x + other.width <= inner.x || other.y + other.height <= inner.y;
                assert!(apart, "{} and {} overlap", other.branch.line, inner.branch.line);
            }
            inside(inner);
        }
    }

    #[test]
    fn boxes_are_within_each_other_and_beside_each_other() {
        let leaf = |line: &str| Branch { kind: Kind::Gpu, line: line.to_owned(), below: Vec::new() };
        let many = (0..40).map(|at| leaf(&"a wide line ".repeat(at % 9 + 1))).collect();
        let node = Branch { kind: Kind::Node, line: "node".to_owned(), below: many };
        let root = Branch { kind: Kind::Machine, line: "all <&>".to_owned(), below: vec![node, leaf("x"), leaf("")] };
        inside(&laid(&root));
        let picture = draw(&root);
        assert!(picture.contains(">all &lt;&amp;&gt;</text>"), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 45);
    }
}
