//! Pictures as SVG: shapes by class, whose colours suit a light and a dark page; no fonts or files of others.

use std::fmt::Write;

/// What the classes look like. A picture is light unless its reader asks for dark.
const STYLE: &str = "\
text { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2328; }
.title { font-size: 15px; font-weight: bold; }
.faint { fill: #656d76; }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.paper { fill: #ffffff; }
.ground { fill: #f3f5f8; }
.rule { stroke: #d5dae0; stroke-width: 1; }
.node { fill: #ffffff; stroke: #656d76; stroke-width: 1.2; }
.one { stroke: #1f6fc4; stroke-width: 1.3; fill: none; }
.one.full { fill: #1f6fc4; stroke: none; }
.two { stroke: #d1570a; stroke-width: 1.9; fill: none; }
.two.full { fill: #d1570a; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.faint { fill: #9198a1; }
.halo { stroke: #10151b; }
.paper { fill: #10151b; }
.ground { fill: #1b222b; }
.rule { stroke: #39414b; }
.node { fill: #10151b; stroke: #9198a1; }
.one { stroke: #58a6ff; }
.one.full { fill: #58a6ff; }
.two { stroke: #ff9b4e; }
.two.full { fill: #ff9b4e; }
}
";

/// A point, in pixels from the upper left corner.
pub type Point = [f64; 2];

/// A picture that is being drawn: what comes later lies above.
pub struct Picture {
    size: Point,
    title: String,
    shapes: String,
}

impl Picture {
    /// An empty page of that width and height; the title is for who can't see it.
    #[must_use]
    pub fn new(size: Point, title: &str) -> Picture {
        Picture { size, title: escape(title), shapes: String::new() }
    }

    /// A line.
    pub fn line(&mut self, class: &str, [x1, y1]: Point, [x2, y2]: Point) {
        self.add(format_args!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"));
    }

    /// An arrow whose point touches `to`, with a text for who points at it.
    pub fn arrow(&mut self, class: &str, from: Point, to: Point, about: &str) {
        let [dx, dy] = [to[0] - from[0], to[1] - from[1]];
        let length = dx.hypot(dy).max(1e-9);
        let [along_x, along_y] = [dx / length, dy / length];
        let (long, wide) = (8.0, 3.2);
        let [x, y] = [to[0] - along_x * long, to[1] - along_y * long];
        self.add(format_args!("<g><title>{}</title>", escape(about)));
        self.line(class, from, [x, y]);
        let corners = [to, [x - along_y * wide, y + along_x * wide], [x + along_y * wide, y - along_x * wide]];
        let corners = corners.map(|[x, y]| format!("{x:.1},{y:.1}")).join(" ");
        self.add(format_args!("<polygon class=\"{class} full\" points=\"{corners}\"/></g>"));
    }

    /// A circle.
    pub fn circle(&mut self, class: &str, [x, y]: Point, radius: f64) {
        self.add(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"));
    }

    /// A rectangle with round corners, by its upper left corner, width and height.
    pub fn rectangle(&mut self, class: &str, [x, y]: Point, [width, height]: Point) {
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>"
        ));
    }

    /// A text that begins at a point of its base line, or ends or is centred there, as its class says.
    pub fn text(&mut self, class: &str, [x, y]: Point, text: &str) {
        self.add(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text)));
    }

    /// How wide a text of the usual size is at most.
    #[must_use]
    pub fn width_of(text: &str) -> f64 {
        7.3 * text.chars().count() as f64
    }

    /// The file.
    #[must_use]
    pub fn finish(self) -> String {
        let Picture { size: [width, height], title, shapes } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{shapes}</svg>\n"
        )
    }

    fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        writeln!(self.shapes, "{shape}").expect("strings take everything");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts_and_arrows_touch_their_ends() {
        let mut picture = Picture::new([100.0, 50.0], "a < b");
        picture.text("faint", [1.0, 2.0], "0 > 1 & 2");
        picture.arrow("one", [0.0, 10.0], [50.0, 10.0], "2 -> 3");
        let svg = picture.finish();
        assert!(svg.contains("<title>a &lt; b</title>") && svg.contains(">0 &gt; 1 &amp; 2</text>"), "{svg}");
        assert!(svg.contains("x1=\"0.0\" y1=\"10.0\" x2=\"42.0\" y2=\"10.0\""), "{svg}");
        assert!(svg.contains("points=\"50.0,10.0 42.0,13.2 42.0,6.8\"") && svg.contains("2 -&gt; 3"), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 100 50\""), "{svg}");
    }
}
