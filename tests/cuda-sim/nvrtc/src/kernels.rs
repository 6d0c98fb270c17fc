//! The kernels in a text, and the functions by which they are launched on the host.

use std::fmt::Write;

/// C++ that follows a text, and defines for each `__global__` function with one parameter in it what `PACELINE_LAUNCH` in
/// `host/cuda.h` defines. Also says which kernels it leaves out, and why.
pub fn launchers(text: &str) -> (String, Vec<String>) {
    // A kernel's name may be a macro, which is expanded on the way to the other macro.
    let mut defined = String::from("\n#define PACELINE_LAUNCH_OF(name) PACELINE_LAUNCH(name)\n");
    let mut left_out = Vec::new();
    for Kernel { name, parameters } in find(text) {
        if count(parameters) == 1 {
            writeln!(defined, "PACELINE_LAUNCH_OF({name})").expect("a string takes everything");
        } else {
            left_out.push(format!("{name}({parameters}): only kernels with one parameter, a value, can be launched"));
        }
    }
    (defined, left_out)
}

/// A kernel as it is declared.
#[derive(PartialEq, Eq, Debug)]
struct Kernel<'a> {
    name: &'a str,
    parameters: &'a str,
}

fn find(text: &str) -> Vec<Kernel<'_>> {
    text.match_indices("__global__").filter_map(|(at, mark)| declared(&text[at + mark.len()..])).collect()
}

/// The kernel whose declaration goes on with `rest`.
fn declared(mut rest: &str) -> Option<Kernel<'_>> {
    loop {
        let (head, behind) = rest.split_once('(')?;
        let name = head.split_whitespace().next_back()?;
        let (parameters, after) = behind.split_once(')')?;
        if name != "__launch_bounds__" {
            return Some(Kernel { name, parameters });
        }
        rest = after;
    }
}

/// How many parameters there are.
fn count(parameters: &str) -> usize {
    let mut depth = 0;
    let commas = parameters.chars().filter(|char| {
        match char {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        *char == ',' && depth == 0
    });
    let commas = commas.count();
    if parameters.trim().is_empty() { 0 } else { commas + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_with_their_parameters() {
        let text = "extern \"C\" __global__ void NAME(const __grid_constant__ paceline::Arguments arguments) {}\n\
                    extern \"C\" __global__ void __launch_bounds__(256)\n    other(Pair<int, int> pair) {}\n\
                    __global__ void two(int a, int b) {}\n__global__ void none() {}";
        let found: Vec<_> = find(text).into_iter().map(|kernel| (kernel.name, count(kernel.parameters))).collect();
        assert_eq!(found, [("NAME", 1), ("other", 1), ("two", 2), ("none", 0)]);
        let (defined, left_out) = launchers(text);
        assert_eq!(defined.matches("PACELINE_LAUNCH_OF(").count(), 3, "{defined}");
        assert!(left_out.len() == 2 && left_out[0].starts_with("two("), "{left_out:?}");
    }
}
