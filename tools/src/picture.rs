//! Drawings into files: as SVG or as PNG, by the ending of the file's name.

#[cfg(feature = "png")]
mod raster;

use std::path::{Path, PathBuf};

/// What a file's ending stands for.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

/// Writes a drawing into a file: as it is into `*.svg`, in pixels, two for each of its units, into `*.png`. What the
/// drawing leaves open is white in a PNG.
///
/// # Errors
///
/// The ending is another; a PNG can't be made, because this build can't or the system has no font for a label; the
/// file can't be written. A picture without its labels is never written.
pub fn write(svg: &str, file: &Path) -> Result<(), String> {
    let written = match format(file)? {
        Format::Svg => std::fs::write(file, svg),
        Format::Png => std::fs::write(file, png(svg).map_err(|why| format!("{}: {why}", file.display()))?),
    };
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// A file that [`write()`] would take, for command lines: so that a wrong ending is known before anything is computed.
///
/// # Errors
///
/// The ending is none of the two.
pub fn file(text: &str) -> Result<PathBuf, String> {
    format(Path::new(text)).map(|_| PathBuf::from(text))
}

fn format(file: &Path) -> Result<Format, String> {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    match ending.as_deref() {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err(format!("{}: a picture's name ends in .svg or .png", file.display())),
    }
}

#[cfg(feature = "png")]
fn png(svg: &str) -> Result<Vec<u8>, String> {
    raster::png(svg, raster::system_fonts())
}

#[cfg(not(feature = "png"))]
fn png(_: &str) -> Result<Vec<u8>, String> {
    Err("this build writes no PNG: use .svg, or build with the feature `png`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"30\" height=\"20\">\
                           <rect x=\"10\" y=\"5\" width=\"10\" height=\"10\"/></svg>";

    #[test]
    fn the_ending_decides() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.svg", "b.SVG"] {
            let file = folder.path().join(name);
            write(DRAWING, &file).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), DRAWING);
        }
        for name in ["a.jpg", "a", ".png", "svg"] {
            let file = folder.path().join(name);
            let error = write(DRAWING, &file).unwrap_err();
            assert!(error.contains(&format!("{name}: ")) && error.contains(".svg or .png"), "{error}");
            assert!(!file.exists() && super::file(name).is_err(), "{name}");
        }
        assert_eq!(super::file("some/where.png").unwrap(), Path::new("some/where.png"));
        let error = write(DRAWING, &folder.path().join("none").join("a.svg")).unwrap_err();
        assert!(error.contains("a.svg: "), "{error}");
    }

    #[cfg(not(feature = "png"))]
    #[test]
    fn a_build_without_png_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.png");
        let error = write(DRAWING, &file).unwrap_err();
        assert!(error.contains("a.png: ") && error.contains("feature `png`"), "{error}");
        assert!(!file.exists());
    }
}
