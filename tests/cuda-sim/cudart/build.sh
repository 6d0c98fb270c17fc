#!/usr/bin/env bash
# Builds the CUDA runtime over the software driver: build.sh PACKAGES FOLDER, where PACKAGES is the folder in which pip has
# installed PyTorch with NVIDIA's packages, whose headers are used. Prints the library's path, for LD_PRELOAD.
set -euo pipefail
packages=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)

theirs=$(find "$packages/nvidia" -name 'libcudart.so.*' 2>/dev/null | sort | head -n 1)
if [ -z "$theirs" ]; then
    echo "no CUDA runtime below $packages/nvidia: is this PyTorch built for CUDA?" >&2
    exit 1
fi
name=$(basename "$theirs")
include=$(dirname "$(dirname "$theirs")")/include
mkdir -p "$folder"
# PyTorch's libraries ask for functions of this version, and find them by the name within.
cat >"$folder/cudart.map" <<EOF
$name {
  global: cuda*; __cuda*; cu[A-Z]*;
  local: *;
};
EOF
"${CXX:-c++}" -std=c++17 -O1 -Wall -shared -fPIC -I"$here" -I"$include" "$here"/*.cpp -o "$folder/$name.new" \
    -Wl,-soname,"$name" -Wl,--version-script="$folder/cudart.map" -ldl
mv "$folder/$name.new" "$folder/$name"
echo "$folder/$name"
