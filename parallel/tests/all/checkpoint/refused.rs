//! What is not loaded, and how that is said.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use paceline_parallel::Result;
use paceline_parallel::checkpoint::{Checkpoint, Extra, LoadOptions, Missing, Saver, SaverOptions};
use paceline_parallel::mesh::Mesh;
use paceline_parallel::optimizer::Ownership;
use paceline_parallel::parameter::{Parameter, Part};
use paceline_parallel::state::State;
use paceline_parallel::value::Spread;

use super::resume::Run;
use crate::cut::{Cut, on_ranks};

fn parameter(name: &str, shape: &[usize], dtype: DType) -> Parameter {
    let value = Tensor::ones(shape, dtype, &Device::Cpu).unwrap();
    Parameter::new(name, Part::all(shape), Spread::invariant(), &value).unwrap()
}

/// A checkpoint of `a` and `b`, by two ranks that each have half.
fn saved(directory: &Path) -> Checkpoint {
    use paceline_parallel::mesh::Axis::Fsdp;
    on_ranks("fsdp=2", |mesh| {
        let parameters = vec![parameter("a", &[5], DType::F32), parameter("b", &[3, 2], DType::F32)];
        let state = Cut::new(mesh, parameters, &[Fsdp]);
        let ownership = Ownership::agree(mesh, &state).unwrap();
        let mut saver = Saver::new(mesh, directory, SaverOptions::default()).unwrap();
        saver.save(&ownership, &state, &Default::default()).unwrap();
        saver.wait().unwrap();
    });
    Checkpoint::latest(directory).unwrap().unwrap()
}

fn load(checkpoint: &Checkpoint, mesh: &Mesh, parameters: Vec<Parameter>, options: &LoadOptions) -> Result<()> {
    let state = Cut::new(mesh, parameters, &[]);
    let ownership = Ownership::agree(mesh, &state).unwrap();
    checkpoint.load(mesh, &ownership, &state, options).map(drop)
}

#[test]
fn other_parameters_than_those_saved_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = saved(directory.path());
    let (a, b) = (("a", &[5][..], DType::F32), ("b", &[3, 2][..], DType::F32));
    let plain = LoadOptions::default();
    let keep = LoadOptions { missing: Missing::Keep, ..plain.clone() };
    let ignore = LoadOptions { extra: Extra::Ignore, ..plain.clone() };
    let moments = LoadOptions { moments: vec!["velocity".to_owned()], ..plain.clone() };
    for (parameters, options, said) in [
        (vec![a, b], &plain, None),
        (vec![a], &plain, Some("b, which are no parameters")),
        (vec![a], &ignore, None),
        (vec![a, b, ("c", &[1], DType::F32)], &plain, Some("has no c")),
        (vec![a, b, ("c", &[1], DType::F32)], &ignore, Some("has no c")),
        (vec![a, b, ("c", &[1], DType::F32)], &keep, None),
        (vec![a, b, ("empty", &[0, 3], DType::F32)], &plain, None),
        (vec![a, ("b", &[2, 3], DType::F32)], &plain, Some("b is [2, 3]")),
        (vec![a, ("b", &[6], DType::F32)], &plain, Some("b is [6]")),
        (
            vec![("a", &[5], DType::F64), ("b", &[3, 2], DType::F64)],
            &plain,
            Some("trained in F64, and was saved in F32"),
        ),
        (vec![a, b], &moments, Some("no velocity of a")),
    ] {
        on_ranks("dp=2", |mesh| {
            let parameters: Vec<_> =
                parameters.iter().map(|(name, shape, dtype)| parameter(name, shape, *dtype)).collect();
            let before: Vec<_> = parameters.iter().map(|parameter| parameter.value().unwrap().id()).collect();
            let loaded = load(&checkpoint, mesh, parameters.clone(), options);
            match said {
                None => loaded.unwrap(),
                Some(said) => {
                    let error = loaded.unwrap_err().to_string();
                    assert!(error.contains(said), "{error}");
                    let after: Vec<_> = parameters.iter().map(|parameter| parameter.value().unwrap().id()).collect();
                    assert_eq!(before, after, "nothing has changed");
                }
            }
        });
    }
}

/// Every byte of every file, one after another, is cut off or changed: the checkpoint is refused, or the byte isn't used.
#[test]
fn damage_is_seen_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = saved(directory.path());
    let path = checkpoint.path().to_owned();
    let try_all = || {
        let checkpoint = Checkpoint::open(&path)?;
        checkpoint.verify()?;
        on_ranks("", |mesh| {
            let parameters = vec![parameter("a", &[5], DType::F32), parameter("b", &[3, 2], DType::F32)];
            load(&checkpoint, mesh, parameters, &LoadOptions::default())
        })
        .remove(0)
    };
    try_all().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["manifest.json", "manifest.sha256", "rank-00000.safetensors", "rank-00001.safetensors"]);
    for name in names {
        let file = path.join(&name);
        let whole = std::fs::read(&file).unwrap();
        for at in (0..whole.len()).step_by(7) {
            std::fs::write(&file, &whole[..at]).unwrap();
            // Of the checksum's file only the digits are read.
            assert!(try_all().is_err() || (name == "manifest.sha256" && at >= 64), "{name:?} cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 4;
            std::fs::write(&file, &changed).unwrap();
            assert!(try_all().is_err() || (name == "manifest.sha256" && at >= 64), "{name:?} changed at {at}");
        }
        std::fs::write(&file, &whole).unwrap();
        std::fs::rename(&file, path.join("elsewhere")).unwrap();
        assert!(try_all().unwrap_err().to_string().contains(name.to_str().unwrap()));
        std::fs::rename(path.join("elsewhere"), &file).unwrap();
    }
    try_all().unwrap();
}

#[test]
fn one_rank_that_cannot_read_stops_all() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    on_ranks("tp=2", |mesh| {
        let run = Run::new(mesh, DType::F32, &[]);
        let mut saver = Saver::new(mesh, directories[0].path(), SaverOptions::default()).unwrap();
        run.save(&mut saver);
        let path = saver.wait().unwrap().unwrap().path;
        // As a rank whose disk has lost a file sees it.
        let copy = directories[1].path().join("copy");
        if mesh.rank() == 1 {
            std::fs::create_dir(&copy).unwrap();
            for name in ["manifest.json", "manifest.sha256", "rank-00000.safetensors"] {
                std::fs::copy(path.join(name), copy.join(name)).unwrap();
            }
        }
        mesh.world().barrier().unwrap();
        let checkpoint = Checkpoint::open(if mesh.rank() == 1 { &copy } else { &path }).unwrap();
        let mut other = Run::new(mesh, DType::F32, &[]);
        other.train(1);
        let before = other.hash();
        let error = checkpoint.load(mesh, &other.ownership, &other.state, &LoadOptions::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("rank-00001") && (mesh.rank() == 1 || error.contains("rank 1:")), "{error}");
        assert_eq!(other.hash(), before);
    });
}

#[test]
fn ranks_must_load_the_same() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    on_ranks("tp=2", |mesh| {
        let mut run = Run::new(mesh, DType::F32, &[]);
        for directory in &directories {
            run.train(1);
            let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
            run.save(&mut saver);
            saver.wait().unwrap();
        }
        let before = run.hash();
        let checkpoint = Checkpoint::latest(directories[mesh.rank()].path()).unwrap().unwrap();
        let error = checkpoint.load(mesh, &run.ownership, &run.state, &LoadOptions::default());
        assert!(error.unwrap_err().to_string().contains("rank 1 loads another"));
        assert_eq!(run.hash(), before);
    });
}

/// Moments that some ranks have and others don't are not saved as if they were whole.
#[test]
fn half_a_moment_is_not_saved() {
    let directory = tempfile::tempdir().unwrap();
    on_ranks("tp=2", |mesh| {
        let run = Run::new(mesh, DType::F32, &[]);
        run.state
            .visit(&mut |shard| {
                if mesh.rank() == 1 {
                    shard.moments.insert("velocity".to_owned(), shard.values.clone());
                }
                Ok(())
            })
            .unwrap();
        let mut saver = Saver::new(mesh, directory.path(), SaverOptions::default()).unwrap();
        run.save(&mut saver);
        let error = saver.wait().unwrap_err().to_string();
        assert!(error.contains("velocity") && error.contains("elements"), "{error}");
    });
    assert!(Checkpoint::latest(directory.path()).unwrap().is_none());
}
