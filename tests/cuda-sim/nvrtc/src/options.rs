//! NVRTC's options, as the host's compiler takes them.

/// What a program is compiled with.
#[derive(PartialEq, Eq, Debug)]
pub struct Options {
    /// What the host's compiler is given.
    pub host: Vec<String>,
    /// The architecture: 90 for `sm_90`.
    pub architecture: u32,
    /// Whether there is code for a device, and not for a family only.
    pub is_real: bool,
}

/// What the host's code is the same with and without. Products are never joined with sums.
const WITHOUT_EFFECT: [&str; 22] = [
    "--fmad",
    "-fmad",
    "--ftz",
    "-ftz",
    "--prec-div",
    "-prec-div",
    "--prec-sqrt",
    "-prec-sqrt",
    "--maxrregcount",
    "-maxrregcount",
    "--generate-line-info",
    "-lineinfo",
    "--device-debug",
    "-G",
    "--restrict",
    "-restrict",
    "--default-device",
    "-default-device",
    "--extra-device-vectorization",
    "-extra-device-vectorization",
    "--disable-warnings",
    "-w",
];

impl Options {
    /// What `options` say, or the one that NVRTC doesn't have.
    pub fn read(options: &[String]) -> Result<Options, String> {
        let mut read = Options { host: Vec::new(), architecture: 75, is_real: false };
        let mut standard = "c++17".to_owned();
        let mut rest = options.iter();
        while let Some(option) = rest.next() {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let mut next = || rest.next().cloned().ok_or_else(|| option.clone());
            match name {
                "--std" | "-std" => standard = value.to_owned(),
                "--gpu-architecture" | "-arch" => {
                    let digits: String = value.chars().filter(char::is_ascii_digit).collect();
                    read.architecture = digits.parse().map_err(|_| option.clone())?;
                    read.is_real = value.starts_with("sm_");
                }
                "--define-macro" => read.host.push(format!("-D{}", &option["--define-macro=".len()..])),
                "--undefine-macro" => read.host.push(format!("-U{value}")),
                "--include-path" => read.host.push(format!("-I{value}")),
                "-D" | "-U" | "-I" => {
                    let value = next()?;
                    read.host.push(format!("{name}{value}"));
                }
                name if name.len() > 2 && ["-D", "-U", "-I"].iter().any(|kind| name.starts_with(kind)) => {
                    read.host.push(option.clone());
                }
                name if WITHOUT_EFFECT.contains(&name) => {}
                _ => return Err(option.clone()),
            }
        }
        read.host.push(format!("-std={standard}"));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[&str]) -> Result<Options, String> {
        Options::read(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_translated_or_refused() {
        let options = read(&["--gpu-architecture=sm_90", "--define-macro=A=B=1", "-D", "C", "-DE=2", "--fmad=false"]);
        let host = ["-DA=B=1", "-DC", "-DE=2", "-std=c++17"].map(str::to_owned).to_vec();
        assert_eq!(options, Ok(Options { host, architecture: 90, is_real: true }));
        assert!(!read(&["-arch=compute_80"]).expect("it is an option").is_real);
        assert_eq!(read(&["--speed=much"]), Err("--speed=much".to_owned()));
        assert_eq!(read(&["--gpu-architecture=fast"]), Err("--gpu-architecture=fast".to_owned()));
    }
}
