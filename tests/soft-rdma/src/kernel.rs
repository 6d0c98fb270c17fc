//! Debian's kernel with its modules: downloaded as a package, unpacked, never installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{find, output};
use crate::error::{Doing, Error, Result};

/// What the guest loads; what these need comes with them.
pub const MODULES: [&str; 9] = [
    "virtio_pci",
    "virtio_net",
    "crc32_generic",
    "crc32c_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    // Tests lay cables of their own, with switches between.
    "veth",
    "bridge",
];

/// A kernel, and what it may load.
pub struct Kernel {
    /// What `uname -r` says in the guest.
    pub version: String,
    /// The image.
    pub image: PathBuf,
    /// Modules and their lists, below the folder that stands for the guest's root.
    pub root: PathBuf,
}

impl Kernel {
    /// The kernel in `cache`, downloaded if it isn't there.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] where no package can be had.
    pub fn get(cache: &Path) -> Result<Kernel> {
        let stamp = cache.join("modules.stamp");
        let known = std::fs::read_to_string(&stamp).unwrap_or_default();
        if let Some((version, modules)) = known.split_once(": ")
            && modules == MODULES.join(" ")
        {
            return Ok(Kernel::at(cache, version));
        }
        let unpacked = tempfile::tempdir_in(cache).doing("making a folder to unpack in")?;
        let package = download(unpacked.path())?;
        let whole = unpacked.path().join("whole");
        output(Command::new("dpkg").arg("-x").arg(&package).arg(&whole))?;
        let boot = whole.join("boot");
        let image = entries(&boot)?.into_iter().find(|name| name.starts_with("vmlinuz-"));
        let image = image.ok_or_else(|| Error::Failed(format!("{} has no kernel", package.display())))?;
        let kernel = Kernel::at(cache, &image["vmlinuz-".len()..]);
        let _ = std::fs::remove_dir_all(cache.join("kernel"));
        std::fs::create_dir_all(&kernel.root).doing("making a folder for the kernel")?;
        std::fs::copy(boot.join(&image), &kernel.image).doing("copying the kernel")?;
        kernel.take_modules(&whole)?;
        std::fs::write(&stamp, format!("{}: {}", kernel.version, MODULES.join(" "))).doing("writing the stamp")?;
        Ok(kernel)
    }

    fn at(cache: &Path, version: &str) -> Kernel {
        let folder = cache.join("kernel");
        Kernel { version: version.to_owned(), image: folder.join("vmlinuz"), root: folder.join("root") }
    }

    /// Copies the modules that the guest loads, with those that they need, and lists them anew.
    fn take_modules(&self, whole: &Path) -> Result<()> {
        let depmod = find("depmod", "kmod")?;
        output(Command::new(&depmod).arg("-b").arg(whole).arg(&self.version))?;
        let mut ask = Command::new(find("modprobe", "kmod")?);
        ask.arg("-d").arg(whole).args(["-S", &self.version, "--show-depends", "-a"]).args(MODULES);
        let needed = output(&mut ask)?;
        let folder = Path::new("lib/modules").join(&self.version);
        let modules = needed.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|line| line.trim());
        let lists = ["modules.order", "modules.builtin", "modules.builtin.modinfo"];
        let lists = lists.map(|name| whole.join(&folder).join(name));
        for file in modules.map(PathBuf::from).chain(lists) {
            let inside = file.strip_prefix(whole).doing(format!("placing {}", file.display()))?;
            let target = self.root.join(inside);
            std::fs::create_dir_all(target.parent().expect("it lies in a folder")).doing("making a folder")?;
            std::fs::copy(&file, &target).doing(format!("copying {}", file.display()))?;
        }
        output(Command::new(&depmod).arg("-b").arg(&self.root).arg(&self.version)).map(drop)
    }
}

/// Downloads the package that holds the current kernel; where it is.
fn download(folder: &Path) -> Result<PathBuf> {
    let missing = |error: Error| Error::Missing(format!("no kernel for the guest: {error}"));
    find("apt-get", "apt").and(find("dpkg", "dpkg")).map_err(missing)?;
    let known = output(Command::new("apt-cache").args(["depends", "--important", "linux-image-amd64"]));
    let known = known.map_err(missing)?;
    let package = known.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or_else(|| missing(Error::Failed("linux-image-amd64 depends on nothing".into())))?;
    let fetch = || output(Command::new("apt-get").args(["download", package]).current_dir(folder));
    // Lists that are older than the archive name files that are no longer there.
    let refresh = |error| output(Command::new("apt-get").arg("update")).map_err(|_| error);
    fetch().or_else(|error| refresh(error).and_then(|_| fetch())).map_err(missing)?;
    let file = entries(folder)?.into_iter().find(|name| name.ends_with(".deb"));
    let file = file.ok_or_else(|| missing(Error::Failed(format!("apt-get download {package} left no file"))))?;
    Ok(folder.join(file))
}

/// The names in a folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let read = std::fs::read_dir(folder).doing(format!("reading {}", folder.display()))?;
    Ok(read.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}
