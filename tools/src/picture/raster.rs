//! An SVG as the bytes of a PNG. Labels need fonts, which are the system's: without them there is no picture.

use std::sync::Arc;

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::{Database, FaceInfo, Family, Query, Stretch, Style, Weight};
use resvg::usvg::{Group, Node, Options, Tree, roxmltree};

/// Pixels for each unit of the drawing, in both directions: small text stays legible.
const SCALE: f32 = 2.0;
/// More pixels, of four bytes each, are taken to be a mistake.
const PIXELS_MAX: f32 = (1u32 << 27) as f32;

pub(super) fn system_fonts() -> Database {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    fonts
}

pub(super) fn png(svg: &str, mut fonts: Database) -> Result<Vec<u8>, String> {
    if fonts.is_empty() {
        return Err("no font was found for its labels: install one (fonts-dejavu-core), or use .svg".to_owned());
    }
    settle(&mut fonts);
    let document = roxmltree::Document::parse(svg).map_err(|error| format!("the drawing is no XML: {error}"))?;
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_xmltree(&document, &options).map_err(|error| format!("the drawing is no SVG: {error}"))?;
    check_labels(&document, &tree)?;
    let (width, height) = ((tree.size().width() * SCALE).ceil(), (tree.size().height() * SCALE).ceil());
    let too_large = || format!("{width} x {height} pixels are too many: use .svg");
    if width * height > PIXELS_MAX {
        return Err(too_large());
    }
    let mut pixels = Pixmap::new(width as u32, height as u32).ok_or_else(too_large)?;
    pixels.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

/// Lets the families that drawings name stand for fonts that are there, whatever the system's configuration says.
fn settle(fonts: &mut Database) {
    let is_there = |family| fonts.query(&Query { families: &[family], ..Query::default() }).is_some();
    let lacks = [Family::Monospace, Family::SansSerif, Family::Serif].map(|family| !is_there(family));
    let any = |wanted: &dyn Fn(&FaceInfo) -> bool| {
        let is_plain = |face: &&FaceInfo| {
            face.style == Style::Normal && face.weight == Weight::NORMAL && face.stretch == Stretch::Normal
        };
        let faces = || fonts.faces().filter(is_plain).chain(fonts.faces());
        let face = faces().find(|face| wanted(face)).or_else(|| faces().next());
        face.and_then(|face| face.families.first()).map(|(name, _)| name.clone()).unwrap_or_default()
    };
    let fixed = any(&|face| face.monospaced);
    let sans = any(&|face| is_called(face, "Sans"));
    let with_serifs = any(&|face| is_called(face, "Serif"));
    let [monospace, sans_serif, serif] = lacks;
    if monospace {
        fonts.set_monospace_family(fixed);
    }
    if sans_serif {
        fonts.set_sans_serif_family(sans);
    }
    if serif {
        fonts.set_serif_family(with_serifs);
    }
}

/// Whether a face that isn't monospaced has a word in its name.
fn is_called(face: &FaceInfo, word: &str) -> bool {
    !face.monospaced && face.families.iter().any(|(name, _)| name.contains(word))
}

/// Whether all labels of a document are in its tree, with a shape for each of their characters.
fn check_labels(document: &roxmltree::Document<'_>, tree: &Tree) -> Result<(), String> {
    let is_label = |node: &roxmltree::Node<'_, '_>| {
        node.has_tag_name("text")
            && node.descendants().any(|part| part.text().is_some_and(|text| !text.trim().is_empty()))
    };
    let count = document.descendants().filter(is_label).count();
    let drawn = labels(tree.root())?;
    if drawn < count {
        return Err(format!("{} of {count} labels can't be drawn: use .svg", count - drawn));
    }
    Ok(())
}

/// How many labels a group has.
fn labels(group: &Group) -> Result<usize, String> {
    let mut count = 0;
    for node in group.children() {
        match node {
            Node::Group(group) => count += labels(group)?,
            Node::Text(text) => {
                let glyphs = text.layouted().iter().flat_map(|span| &span.positioned_glyphs);
                let seen = glyphs.filter(|glyph| !glyph.text.trim().is_empty());
                if let Some(missing) = seen.clone().find(|glyph| glyph.id.0 == 0) {
                    let text = &missing.text;
                    return Err(format!(
                        "no font has {text:?}: install one (fonts-dejavu-core has the most common), or use .svg"
                    ));
                }
                count += usize::from(seen.count() > 0);
            }
            _ => {}
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(inner: &str) -> String {
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"60.2\" height=\"30\">{inner}</svg>")
    }

    /// The system's fonts, if there are some.
    fn fonts() -> Option<Database> {
        let fonts = system_fonts();
        if fonts.is_empty() {
            println!("skipped: no fonts are installed (fonts-dejavu-core)");
        }
        (!fonts.is_empty()).then_some(fonts)
    }

    fn decoded(bytes: &[u8]) -> Pixmap {
        assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
        Pixmap::decode_png(bytes).unwrap()
    }

    fn dark(pixels: &Pixmap) -> usize {
        pixels.pixels().iter().filter(|pixel| pixel.red() < 128).count()
    }

    #[test]
    fn a_drawing_is_twice_as_large_on_white() {
        let Some(fonts) = fonts() else { return };
        let inner = "<rect x=\"10\" y=\"5\" width=\"20\" height=\"10\"/>";
        let pixels = decoded(&png(&drawing(inner), fonts).unwrap());
        assert_eq!((pixels.width(), pixels.height()), (121, 60));
        assert_eq!(dark(&pixels), 40 * 20);
        assert!(pixels.pixels().iter().all(|pixel| pixel.is_opaque()));
        let white = pixels.pixels().iter().filter(|pixel| pixel.red() == 255 && pixel.blue() == 255).count();
        assert_eq!(white, 121 * 60 - 40 * 20);
    }

    #[test]
    fn families_stand_for_fonts_of_their_kind() {
        let Some(mut fonts) = fonts() else { return };
        fonts.set_sans_serif_family("Nothing");
        fonts.set_serif_family("Something");
        settle(&mut fonts);
        for (family, word) in [(Family::SansSerif, "Sans"), (Family::Serif, "Serif")] {
            if fonts.faces().any(|face| is_called(face, word)) {
                let name = fonts.family_name(&family);
                assert!(name.contains(word), "{name} for {word}");
            } else {
                println!("skipped: no font is called {word}");
            }
        }
    }

    #[test]
    fn labels_are_drawn_by_whatever_font_there_is() {
        let Some(fonts) = fonts() else { return };
        for family in ["monospace", "sans-serif", "serif", "Nobody's Own"] {
            let svg = drawing(&format!("<text x=\"2\" y=\"20\" font-family=\"{family}\">label</text>"));
            let mut misled = fonts.clone();
            misled.set_monospace_family("Nothing");
            misled.set_sans_serif_family("Nothing");
            misled.set_serif_family("Nothing");
            for fonts in [fonts.clone(), misled] {
                assert!(dark(&decoded(&png(&svg, fonts).unwrap())) > 50, "{family}");
            }
        }
    }

    #[test]
    fn no_picture_is_without_its_labels() {
        let label = |text: &str| drawing(&format!("<text x=\"2\" y=\"20\">{text}</text>"));
        for svg in [label("label"), drawing("")] {
            let error = png(&svg, Database::new()).unwrap_err();
            assert!(error.contains("fonts-dejavu-core") && error.contains(".svg"), "{error}");
        }
        let Some(fonts) = fonts() else { return };
        let error = png(&label("a\u{10fffd}"), fonts.clone()).unwrap_err();
        assert!(error.contains("no font has \"\\u{10fffd}\""), "{error}");
        let unseen =
            format!("{}</svg>", label("label").replace("</svg>", "<text x=\"2\" y=\"3\" display=\"none\">b</text>"));
        let error = png(&unseen, fonts.clone()).unwrap_err();
        assert!(error.contains("1 of 2 labels"), "{error}");
        assert!(png(&label(" "), fonts).is_ok(), "an empty label lacks nothing");
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let Some(fonts) = fonts() else { return };
        for (svg, why) in [
            ("<svg", "no XML"),
            ("<html/>", "no SVG"),
            (
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200000\" height=\"200000\"/>",
                "400000 x 400000 pixels",
            ),
        ] {
            let error = png(svg, fonts.clone()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
