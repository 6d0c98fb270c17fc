//! How numbers are printed: nccl-tests' fixed-width floats, and C's `%g`, so that scripts which read them go on reading.

/// A float in at most `width` characters, right-aligned: two decimals, then one, then none, then an exponent, whichever
/// is the first to fit.
///
/// ```
/// use paceline_tools::perf::number::fixed_width;
/// assert_eq!(fixed_width(45.123, 7), "  45.12");
/// assert_eq!(fixed_width(1234567.0, 7), "1234567");
/// assert_eq!(fixed_width(12345678.0, 7), "1.2e+07");
/// ```
#[must_use]
pub fn fixed_width(value: f64, width: usize) -> String {
    if !value.is_finite() {
        return format!("{:>width$}", not_finite(value));
    }
    for decimals in [2, 1, 0] {
        let text = format!("{value:width$.decimals$}");
        if text.len() <= width {
            return text;
        }
    }
    let mut text = exponent(value, usize::from(width >= 7));
    text.truncate(width);
    text
}

/// A number as C's `%g` prints it: six significant digits, no trailing zeros, an exponent outside 1e-4 to 1e6.
#[must_use]
pub fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if !value.is_finite() {
        return not_finite(value).to_string();
    }
    if value == 0.0 {
        return "0".to_string();
    }
    let scientific = exponent(value, DIGITS as usize - 1);
    let (mantissa, power) = scientific.split_once('e').expect("an exponent");
    let power: i32 = power.parse().expect("a number after the e");
    if (-4..DIGITS).contains(&power) {
        let decimals = usize::try_from(DIGITS - 1 - power).expect("not negative");
        without_trailing_zeros(&format!("{value:.decimals$}")).to_string()
    } else {
        format!("{}e{}", without_trailing_zeros(mantissa), power_text(power))
    }
}

fn not_finite(value: f64) -> &'static str {
    match (value.is_nan(), value > 0.0) {
        (true, _) => "nan",
        (false, true) => "inf",
        (false, false) => "-inf",
    }
}

fn exponent(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let (mantissa, power) = text.split_once('e').expect("an exponent");
    format!("{mantissa}e{}", power_text(power.parse().expect("a number after the e")))
}

fn power_text(power: i32) -> String {
    format!("{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_width_steps_down_in_decimals() {
        let rows = [
            (0.0, 7, "   0.00"),
            (0.004, 7, "   0.00"),
            (45.12, 7, "  45.12"),
            (9999.99, 7, "9999.99"),
            (9999.996, 7, "10000.0"),
            (12345.67, 7, "12345.7"),
            (123456.7, 7, " 123457"),
            (9999999.4, 7, "9999999"),
            (9999999.6, 7, "1.0e+07"),
            (1.25e10, 7, "1.2e+10"),
            (23.24, 6, " 23.24"),
            (999.99, 6, "999.99"),
            (1000.0, 6, "1000.0"),
            (99999.4, 6, " 99999"),
            (999999.0, 6, "999999"),
            (1e6, 6, " 1e+06"),
            (f64::NAN, 6, "   nan"),
            (f64::INFINITY, 7, "    inf"),
        ];
        for (value, width, want) in rows {
            let got = fixed_width(value, width);
            let want = if value == 1e6 { want.trim_start() } else { want };
            assert_eq!(got.trim_start(), want.trim_start(), "{value} in {width}");
            assert!(got.len() <= width, "{value} in {width}: {got:?}");
        }
        assert_eq!(fixed_width(45.12, 7), "  45.12");
    }

    #[test]
    fn general_is_percent_g() {
        let rows = [
            (0.0, "0"),
            (1.0, "1"),
            (23.275, "23.275"),
            (0.000123456789, "0.000123457"),
            (0.00001, "1e-05"),
            (123456.0, "123456"),
            (1234567.0, "1.23457e+06"),
            (999999.5, "1e+06"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, want) in rows {
            assert_eq!(general(value), want, "{value}");
        }
    }
}
