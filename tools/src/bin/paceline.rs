//! `paceline`: starts jobs, and shows and measures what the library would do.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use paceline_tools::{doctor, draw, explain, launch, log, rows, simulate, topo, tune};

/// Collective communication between processes
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Launch(launch::arguments::Arguments),
    Doctor(doctor::Arguments),
    Draw(draw::Arguments),
    Explain(explain::Arguments),
    Rows(rows::Arguments),
    Simulate(simulate::Arguments),
    Topo(topo::Arguments),
    Tune(tune::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Launch(arguments) => ExitCode::from(launch::main(&arguments)),
        Command::Doctor(arguments) => match log::begin() {
            Ok(()) => doctor::main(&arguments),
            Err(why) => {
                eprintln!("paceline doctor: {why}");
                ExitCode::FAILURE
            }
        },
        Command::Draw(arguments) => match draw::text(&arguments) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("paceline draw: {why}");
                ExitCode::FAILURE
            }
        },
        Command::Explain(arguments) => match log::begin().and_then(|()| explain::text(&arguments)) {
            Ok(text) => {
                print!("{}", text.unwrap_or_default());
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("paceline explain: {why}");
                ExitCode::FAILURE
            }
        },
        Command::Rows(arguments) => {
            print!("{}", rows::text(&arguments));
            ExitCode::SUCCESS
        }
        Command::Simulate(arguments) => match simulate::main(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("paceline simulate: {why}");
                ExitCode::FAILURE
            }
        },
        Command::Topo(arguments) => match log::begin().and_then(|()| topo::main(&arguments)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("paceline topo: {why}");
                ExitCode::FAILURE
            }
        },
        Command::Tune(arguments) => match log::begin() {
            Ok(()) => tune::main(&arguments),
            Err(why) => {
                eprintln!("paceline tune: {why}");
                ExitCode::FAILURE
            }
        },
    }
}
