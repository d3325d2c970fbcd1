#!/usr/bin/env python3
"""Checks that the folders keep to their layers, by what they include and by what they link.

    tools/layers.py [ROOT]

The layers (ARCHITECTURE.md), lowest first; a folder sees itself and what is named beside it:

    0  include/hps, src/base, src/types over it
    1  src/tier, src/network/onnx
       src/gpu over base                   the CUDA code that folders share
       src/network over network/onnx       the interface of a dense network
       src/network/plan over network/onnx
    2  src/l1_* l2_* l3_*                  never each other; l1_gpu over gpu
       src/network/cpu over network        network/gpu over it, plan and gpu
       src/inference over network          its predictions of an open store link node
       src/absent                          stands in for what a build leaves out, on any layer
    3  src/serving                         no layer 2
    4  src/query update import             never each other, no layer 2; import sees network/onnx
    5  src/node                            links inference, for the check of a network at its import
       src/publish                         includes import and update, links a stream of update
       src/train                           base types: the interfaces of training
       src/train_cpu                       over train; nothing of serving sees them
       src/train_gpu                       over train and gpu
    6  cli triton src/server src/c_api     link node, include include/hps, base/, types/; triton and
                                           src/server/core also inference/
    7  python                              includes include/hps, c_api/, train/, train_cpu/
       examples/                           include include/hps
       tests/ bench/                       anything
       src/testing                         base types tier train update; only tests and bench/ see
                                           it

Each third-party library stays behind the folders named in THIRD_PARTY.
"""

import pathlib
import re
import sys

from source_tree import Finding, SourceTree, line_of

LOW = {"include", "base", "types"}
LEVELS = {"l1_gpu", "l2_memory", "l2_redis", "l3_pages", "l3_rocksdb"}
MIDDLE = {"query", "update", "import"}

# Folder -> folders whose headers it may include (itself always).
MAY_INCLUDE: dict[str, set[str]] = {
    "include": set(), "base": {"include"}, "types": {"include", "base"}, "tier": LOW,
    "testing": LOW | {"tier", "train", "update"}}
MAY_INCLUDE |= {"train": LOW, "train_cpu": LOW | {"train"},
                "train_gpu": LOW | {"train", "gpu"}}
MAY_INCLUDE |= {folder: LOW | {"tier"} for folder in LEVELS | MIDDLE | {"serving"}}
MAY_INCLUDE |= {folder: LOW | {"tier", "serving"} for folder in ("query", "update")}
# What the folders with CUDA share.
MAY_INCLUDE["gpu"] = {"include", "base"}
MAY_INCLUDE["l1_gpu"] |= {"gpu"}
# Rows in page files are a part of the store.
MAY_INCLUDE["l3_rocksdb"] |= {"l3_pages"}
MAY_INCLUDE["network_onnx"] = LOW
MAY_INCLUDE["import"] = LOW | {"tier", "network_onnx"}
# src/network/cpu and src/network/gpu implement src/network, from the plan of src/network/plan.
MAY_INCLUDE |= {folder: LOW | {"network_onnx"} for folder in ("network", "network_plan")}
NETWORK = {"network", "network_onnx"}
MAY_INCLUDE |= {folder: LOW | NETWORK for folder in ("network_cpu", "inference")}
MAY_INCLUDE["network_gpu"] = LOW | NETWORK | {"network_plan", "gpu"}
MAY_INCLUDE["node"] = LOW | {"tier", "serving", "network_onnx"} | LEVELS | MIDDLE
# src/update/kafka is a transport of src/update.
MAY_INCLUDE["update_kafka"] = LOW | {"tier", "update"}
MAY_INCLUDE["absent"] = LOW | {"tier", "network", "train", "update", "server_core"}
MAY_INCLUDE["publish"] = LOW | {"tier", "import", "update"}
MAY_INCLUDE["examples"] = {"include"}
# The backend of Triton brings requests to the inference core, as the server does.
MAY_INCLUDE["triton"] = LOW | NETWORK | {"inference"}
# tools/triton_peer has another backend of Triton, which the first one is measured against.
MAY_INCLUDE["tools"] = {"triton"}
# src/c_api is the C interface; python/csrc, the extension of Python, shares its JSON texts.
MAY_INCLUDE["c_api"] = LOW
MAY_INCLUDE["python"] = {"include", "c_api", "train", "train_cpu"}
# src/server/core knows no protocol, src/server/net has what protocols share; their neighbours are
# codecs and pages over them, never each other; src/server itself composes them.
MAY_INCLUDE["server_core"] = LOW | NETWORK | {"inference"}
SERVER_PARTS = {"server_http", "server_grpc", "server_pages"}
MAY_INCLUDE |= {folder: LOW | {"server_core", "inference"} for folder in SERVER_PARTS}
MAY_INCLUDE["server_net"] = LOW | {"server_core"}
MAY_INCLUDE["server_http"] |= {"server_net"}
MAY_INCLUDE["server_grpc_codec"] = LOW | {"server_core"}
MAY_INCLUDE["server_grpc"] |= {"server_grpc_codec", "server_net"}
MAY_INCLUDE["server"] = LOW | {"server_core"} | SERVER_PARTS
MAY_INCLUDE["cli"] = LOW

# Headers beyond MAY_INCLUDE: synthetic tables, the files of tables and the text of an option, which
# are no part of the public API; the one kind of mutex.
MAY_INCLUDE_HEADER = {"cli": {"import/generate.h", "import/hugectr_config.h",
                              "import/formats/npy_files.h", "import/formats/result_file.h",
                              "import/row_source.h", "import/split_files.h",
                              "inference/network_check.h"},
                      "examples": {"import/generate.h"},
                      "node": {"inference/network_check.h"},
                      "python": {"base/mutex.h", "import/generate.h",
                                 "network/cpu/openvino_network.h",
                                 "inference/network_check.h", "types/elements.h",
                                 "types/update_start.h"}}
# As above, for tests and fuzz targets only.
TESTS_MAY_INCLUDE_HEADER = {"inference": {"node/open_store.h", "node/test_store_files.h",
                                          "tier/device_cache_factory.h"},
                            "server": {"import/generate.h"}, "server_grpc": {"import/generate.h"},
                            "network_plan": {"network/dense_network.h"}}

# Folder -> folders that it may link besides those it may include: the top layer is composed by
# node, whose headers it does not see.
MAY_LINK_TOO = {folder: {"node"} for folder in ("python", "triton", "server", "server_core",
                                                 "server_grpc", "server_pages", "examples")}
MAY_LINK_TOO["c_api"] = {"node", "shared"}  # hps_shared is libhps.so
MAY_LINK_TOO["cli"] = {"node", "publish", "server"}
ENGINES = {"network_cpu", "network_gpu", "absent"}
MAY_LINK_TOO |= {folder: {"node"} | ENGINES for folder in ("server_core", "triton", "inference")}
MAY_LINK_TOO["network_plan"] = ENGINES  # its tests
MAY_LINK_TOO |= {"node": {"update_kafka", "absent", "inference"},
                 "publish": {"update_kafka", "absent"}}
MAY_LINK_TOO["server"] = {"node", "absent"}

# What the build chooses: a CMake variable -> the folders that it may name.
CHOSEN_BY_THE_BUILD = {"${HPS_LEVEL1}": ["l1_gpu", "absent"],
                       "${HPS_LEVEL2_REMOTE}": ["l2_redis", "absent"],
                       "${HPS_UPDATE_STREAM}": ["update_kafka", "absent"],
                       "${HPS_SERVER_GRPC}": ["server_grpc", "absent"],
                       "${HPS_DENSE}": ["network_cpu", "absent"],
                       "${HPS_DENSE_DEVICE}": ["network_gpu", "absent"]}
# Folders of several targets, or of one with another name: target -> folder.
FOLDER_OF_TARGET = {"predict": "inference", "tls": "base"} | {
    f"no_{part}": "absent"
    for part in ("gpu", "redis", "dense", "dense_gpu", "kafka", "grpc", "train_gpu")}

TEST_FILE = re.compile(r"(_test\.(cc|cu)|/test_\w+\.(h|cuh|cc|cu)|_world\.h|"
                       r"_contract(_\w+)?\.(h|cc)|/fuzz_\w+\.cc)$|^src/testing/")

FREE = {"tests", "bench"}  # may include and link anything

# Library -> (pattern of its headers, pattern of its CMake targets, folders that may use it).
ANYWHERE = None
THIRD_PARTY = {
    "Abseil": (r"absl/", r"absl::", ANYWHERE),
    "RocksDB": (r"rocksdb/", r"RocksDB::", {"l3_rocksdb"}),
    "toml++": (r"toml(\+\+/|\.hpp)", r"tomlplusplus::", {"node"}),
    "CLI11": (r"CLI/", r"CLI11::", {"cli"}),
    "spdlog": (r"(spdlog|fmt)/", r"(spdlog|fmt)::", {"base"}),
    "nlohmann-json": (r"nlohmann/", r"nlohmann_json::",
                      {"import", "node", "cli", "server_http", "server_pages", "triton"}),
    "xxHash": (r"xxhash\.h|xxh3\.h", r"PkgConfig::XXHASH",
               {"base", "l2_redis", "l3_pages", "l3_rocksdb", "update"}),
    "liburing": (r"liburing", r"PkgConfig::LIBURING", {"l3_pages"}),
    "CUDA": (r"cuda|cub/|nv/|thrust/|cooperative_groups|nccl|cublas|mma\.h", r"CUDA::",
             {"gpu", "l1_gpu", "network_gpu", "train_gpu"}),
    "hiredis": (r"hiredis/", r"PkgConfig::HIREDIS", {"l2_redis"}),
    "librdkafka": (r"librdkafka/", r"PkgConfig::RDKAFKA", {"update_kafka"}),
    "Boost": (r"boost/", r"Boost::", {"server_http", "cli"}),
    "OpenSSL": (r"openssl/", r"OpenSSL::",
                {"base", "server_core", "server_net", "server_http", "l2_redis"}),
    "zlib": (r"zlib\.h", r"ZLIB::", {"server_net"}),
    "simdjson": (r"simdjson", r"(PkgConfig::SIMDJSON|simdjson::)", {"server_http"}),
    "gRPC": (r"(grpc|grpcpp)/|(\w+/)*\w+\.grpc\.pb\.h", r"gRPC::", {"server_grpc"}),
    "protobuf": (r"google/protobuf/|(\w+/)*[\w-]+\.pb\.h", r"protobuf::",
                 {"network_onnx", "server_grpc"}),
    "OpenVINO": (r"openvino/", r"openvino::", {"network_cpu"}),
    "nghttp2": (r"nghttp2/", r"PkgConfig::NGHTTP2", {"server_grpc"}),
    "prometheus-cpp": (r"prometheus/", r"prometheus-cpp::", {"server_pages"}),
    "nanobind": (r"nanobind/|Python\.h", r"nanobind::", {"python"}),
    "XLA": (r"xla/ffi/", r"xla::", {"python"}),
    "Google Benchmark": (r"benchmark/", r"benchmark::", set()),
    "GoogleTest": (r"(gtest|gmock)/", r"GTest::", set()),
}
# Headers of the C++ library, of C and of the system.
SYSTEM_HEADER = re.compile(
    r"[a-z_]+|(sys|linux|netinet|arpa|net)/[a-z_]+\.h|sanitizer/asan_interface\.h|"
    r"(cpuid|emmintrin|errno|fcntl|fnmatch|immintrin|malloc|poll|pthread|pwd|sched|signal|spawn|"
    r"time|unistd|cxxabi|dirent|dlfcn|execinfo|math|netdb|stddef|stdint|stdio|stdlib|string)\.h")
# Written by the build, not in the tree.
GENERATED = {"bench_commit.h": "bench"}
# Of the public headers, these alone may be of a third party.
PUBLIC_THIRD_PARTY = re.compile(r"absl/status/(status|statusor)\.h")


# Folders whose folders are units of their own.
PARTED = (["src", "network"], ["src", "server"], ["src", "update"])


def folder_of(path: str) -> str | None:
    """src/tier/fence.h -> tier, include/hps/types.h -> include, tests/real/x.cc -> tests,
    src/server/http/x.cc -> server_http."""
    parts = path.split("/")
    if len(parts) < 2:
        return None
    if parts[:2] in PARTED and len(parts) > 3 and parts[2] != "kernels":
        return f"{parts[1]}_{parts[2]}"
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def is_test(path: str) -> bool:
    """Tests, their helpers and contract suites may use GoogleTest, wherever they lie."""
    return TEST_FILE.search(path) is not None or folder_of(path) in FREE


def third_party_of(include: str, column: int) -> str | None:
    for library, patterns in THIRD_PARTY.items():
        if re.match(patterns[column], include):
            return library
    return None


def may_use(path: str, folder: str, library: str) -> bool:
    if folder in FREE:
        return True
    if library == "GoogleTest":
        return is_test(path)
    folders = THIRD_PARTY[library][2]
    return folders is ANYWHERE or folder in folders


def check_third_party(path: str, folder: str, include) -> str | None:
    if third_party_of(include.path, 0) is None:
        if include.quoted:
            return f'"{include.path}" is no header of this project (roots: src/, include/)'
        if not SYSTEM_HEADER.fullmatch(include.path):
            return f"<{include.path}> is of no library that tools/layers.py knows"
        return None
    library = third_party_of(include.path, 0)
    if folder == "include" and not PUBLIC_THIRD_PARTY.fullmatch(include.path):
        return f"{include.path}: public headers include no third-party header but Abseil's Status"
    if not may_use(path, folder, library):
        return f"{include.path}: {library} does not belong into {folder}/"
    return None


def check_include(tree: SourceTree, path: str, folder: str, include) -> str | None:
    target = tree.resolve(include.path)
    if target is None and include.path in GENERATED:
        target = f"{GENERATED[include.path]}/{include.path}"
    if target is None:
        return check_third_party(path, folder, include)
    if not include.quoted:
        return f"<{include.path}> is a header of this project: use quotes"
    allowed = MAY_INCLUDE.get(folder)
    other = folder_of(target)
    if folder in FREE or other == folder or (other == "testing" and is_test(path)):
        return None
    if allowed is None:
        return f"{folder}/ has no place in the layers: add it to tools/layers.py"
    extra = MAY_INCLUDE_HEADER.get(folder, set())
    if is_test(path):
        extra = extra | TESTS_MAY_INCLUDE_HEADER.get(folder, set())
    if other not in allowed and include.path not in extra:
        return f"{folder}/ must not include {other}/ ({include.path})"
    return None


def check_includes(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.ending(".h", ".cc", ".cu", ".cuh"):
        folder = folder_of(path)
        if folder is None:
            findings.append(Finding(path, 1, "layers", "source files belong into a folder"))
            continue
        if path.endswith((".cu", ".cuh")) and not may_use(path, folder, "CUDA"):
            findings.append(Finding(path, 1, "layers", f"CUDA does not belong into {folder}/"))
        for include in tree.includes(path):
            message = check_include(tree, path, folder, include)
            if message:
                findings.append(Finding(path, include.line, "layers", message))
    return findings


CMAKE_COMMAND = re.compile(
    r"^[ \t]*(hps_library|hps_test|hps_fuzz|target_link_libraries)\s*\(([^()]*)\)", re.MULTILINE)
CMAKE_KEYWORDS = {"SOURCES", "HEADERS", "DEPENDS", "LIBRARIES"}


def folders_of_target(target: str) -> list[str]:
    return CHOSEN_BY_THE_BUILD.get(target, [FOLDER_OF_TARGET.get(target, target)])


def parse_command(command: str, words: list[str]) -> tuple[bool, list[str], list[str]]:
    """(is a test, folders that are linked, targets of third parties that are linked)."""
    linked = [word for word in words[1:] if word.startswith("hps_")]
    folders = []
    for word in linked:
        folder = word.removeprefix("hps_")
        folders += folders_of_target(folder)
    keyword = ""
    for word in words[1:]:
        if word in CMAKE_KEYWORDS:
            keyword = word
        elif keyword == "DEPENDS":
            folders += folders_of_target(word)
    libraries = [word for word in words if "::" in word]
    is_test_command = command in ("hps_test", "hps_fuzz") or words[0].endswith("_test")
    return is_test_command, [folder for folder in folders if folder != "options"], libraries


def cmake_commands(tree: SourceTree, path: str):
    text = re.sub(r"#[^\n]*", lambda match: " " * len(match[0]), tree.text(path))
    for match in CMAKE_COMMAND.finditer(text):
        words = match[2].split()
        if words:
            yield line_of(text, match.start()), *parse_command(match[1], words)


def check_linked_folder(folder: str, other: str, is_test_command: bool) -> str | None:
    if other == folder or (other == "testing" and is_test_command):
        return None
    if other == "testing" and folder != "tests":
        return f"{folder}/: only tests link testing/"
    if folder in FREE:
        return None
    if other not in MAY_INCLUDE.get(folder, set()) | MAY_LINK_TOO.get(folder, set()):
        return f"{folder}/ must not link {other}/"
    return None


def check_links(tree: SourceTree) -> list[Finding]:
    findings = []
    for path in tree.ending("/CMakeLists.txt"):
        folder = folder_of(path)
        for line, is_test_command, folders, libraries in cmake_commands(tree, path):
            messages = [check_linked_folder(folder, other, is_test_command) for other in folders]
            for target in libraries:
                library = third_party_of(target, 1)
                stand_in = f"src/{folder}/x_test.cc" if is_test_command else f"src/{folder}/x.cc"
                if library and not may_use(stand_in, folder, library):
                    messages.append(f"{target}: {library} does not belong into {folder}/")
            findings += [Finding(path, line, "layers", message) for message in messages if message]
    return findings


def linked_closure(direct: dict[str, set[str]], folder: str) -> set[str]:
    reached, open_folders = set(), [folder]
    while open_folders:
        for other in direct.get(open_folders.pop(), set()) - reached:
            reached.add(other)
            open_folders.append(other)
    return reached


def check_links_cover_includes(tree: SourceTree) -> list[Finding]:
    """A folder that includes another without linking it compiles by luck."""
    direct: dict[str, set[str]] = {}
    for path in tree.ending("/CMakeLists.txt"):
        for _, is_test_command, folders, _ in cmake_commands(tree, path):
            if not is_test_command:
                direct.setdefault(folder_of(path), set()).update(folders)
    findings = []
    for path in tree.ending(".h", ".cc", ".cu", ".cuh"):
        folder = folder_of(path)
        if is_test(path) or folder not in direct or not path.startswith("src/"):
            continue
        known = linked_closure(direct, folder) | {folder, "include"}
        for include in tree.includes(path):
            target = tree.resolve(include.path)
            if target and folder_of(target) not in known:
                findings.append(Finding(path, include.line, "layers",
                                        f"{folder}/CMakeLists.txt does not link "
                                        f"{folder_of(target)}/ ({include.path})"))
    return findings


def check(root: pathlib.Path) -> list[Finding]:
    tree = SourceTree(root)
    return sorted(set(check_includes(tree) + check_links(tree) + check_links_cover_includes(tree)))


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if len(sys.argv) < 2:
        root = root.parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"layers: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
