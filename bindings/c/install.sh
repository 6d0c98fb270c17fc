#!/usr/bin/env bash
# Builds libpaceline and installs it with its headers, paceline.pc and the files for CMake.
#
#   ./install.sh PREFIX [--features cuda,rdma] [--from FOLDER]
#
# --from takes libpaceline.a as it lies in FOLDER instead of building it. Needs cargo (unless --from) and cc.
#
# The shared library is linked here, from the static one, since cargo's own has no versions on its symbols: rustc gives the
# linker a version script without names, which can't be combined with one that has some.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

prefix="" features="" from=""
while (($#)); do
    case $1 in
    --features) features=${2:?$(usage)} && shift ;;
    --from) from=${2:?$(usage)} && shift ;;
    -*) usage ;;
    *) [ -z "$prefix" ] || usage && prefix=$1 ;;
    esac
    shift
done
[ -n "$prefix" ] || usage

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
abi=$(sed -n 's/.*-soname,libpaceline\.so\.\([0-9]*\).*/\1/p' "$here/build.rs")
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

if [ -z "$from" ]; then
    (cd "$here" && cargo build --release -p paceline-c --features "$features")
    from=${CARGO_TARGET_DIR:-$here/../../target}/release
fi

mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/Paceline" "$prefix/include"
prefix=$(cd "$prefix" && pwd)
library=$prefix/lib/libpaceline.so.$version
# Written beside and renamed, so that programs that run keep the library that they have.
"${CC:-cc}" -shared -o "$library.new" -Wl,-soname,"libpaceline.so.$abi" -Wl,--version-script="$here/paceline.map" \
    -Wl,--gc-sections -Wl,-z,relro,-z,now -Wl,--strip-debug \
    -Wl,--whole-archive "$from/libpaceline.a" -Wl,--no-whole-archive $private
mv "$library.new" "$library"
ln -sf "libpaceline.so.$version" "$prefix/lib/libpaceline.so.$abi"
ln -sf "libpaceline.so.$abi" "$prefix/lib/libpaceline.so"
cp "$from/libpaceline.a" "$prefix/lib/"
(cd "$here/include" && find . -name '*.h' | while read -r header; do
    mkdir -p "$prefix/include/$(dirname "$header")"
    cp "$header" "$prefix/include/$header"
done)

fill() {
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" -e "s|@ABI@|$abi|g" -e "s|@PRIVATE@|$private|g" "$1" >"$2"
}
fill "$here/paceline.pc.in" "$prefix/lib/pkgconfig/paceline.pc"
fill "$here/PacelineConfig.cmake.in" "$prefix/lib/cmake/Paceline/PacelineConfig.cmake"
fill "$here/PacelineConfigVersion.cmake.in" "$prefix/lib/cmake/Paceline/PacelineConfigVersion.cmake"
echo "libpaceline $version is in $prefix; try:"
echo "  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib"
echo "  cc $here/examples/all_reduce.c \$(pkg-config --cflags --libs paceline) -o all_reduce"
