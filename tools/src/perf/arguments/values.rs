//! How single values are read: sizes, counts, switches.

/// A size in bytes: a number, with decimals if need be, and K, M or G (binary; a following B or iB changes nothing).
///
/// # Errors
///
/// What is wrong with the text.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = number.trim_end();
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(format!("'{text}' is no size: the unit '{unit}' is none of K, M, G")),
    };
    let too_large = || format!("'{text}' is no size: too large");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).filter(|bytes| *bytes <= i64::MAX as u64).ok_or_else(too_large);
    }
    let shape = || number.chars().all(|c| c.is_ascii_digit() || c == '.') && number.chars().any(|c| c.is_ascii_digit());
    match number.parse::<f64>() {
        Ok(value) if shape() => {
            let bytes = value * unit as f64;
            if bytes < i64::MAX as f64 { Ok(bytes as u64) } else { Err(too_large()) }
        }
        _ => Err(format!("'{text}' is no size: write a number with K, M or G, such as 64K or 0.5G")),
    }
}

/// A whole number of at least `least` and at most `most`, in decimal or, after 0x, hexadecimal.
///
/// # Errors
///
/// What is wrong with the text.
pub fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match value {
        Ok(value) if least <= value && value <= most => Ok(value),
        Ok(_) if most == u64::MAX => Err(format!("'{text}' is below {least}")),
        Ok(_) => Err(format!("'{text}' is not between {least} and {most}")),
        Err(_) => Err(format!("'{text}' is no whole number of {least} or more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let good = [
            ("0", 0),
            ("8", 8),
            ("8b", 8),
            ("64K", 65536),
            ("64k", 65536),
            ("32M", 32 << 20),
            ("32MB", 32 << 20),
            ("1GiB", 1 << 30),
            ("0.5G", 1 << 29),
            ("1.5k", 1536),
            (".5K", 512),
            ("2 M", 2 << 20),
            ("4294967297", 4294967297),
            ("9007199254740993", 9007199254740993),
        ];
        for (text, want) in good {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "K", "-8", "-1K", "8T", "8x", "1.2.3", "nan", "inf", "1e6", "8 8", "99999999999G", "."] {
            assert!(size(text).is_err(), "{text:?} gave {:?}", size(text));
        }
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(whole("20", 1, 100), Ok(20));
        assert_eq!(whole("0x10", 1, 100), Ok(16));
        for text in ["0", "101", "-1", "", "1.5", "ten", "0xg", "18446744073709551616"] {
            assert!(whole(text, 1, 100).is_err(), "{text:?}");
        }
    }
}
