"""What the name and the first bytes of a file say about its content."""

import codecs

_BINARY = """
    .7z .a .aac .aiff .apk .arrow .avi .avif .avro .bin .blend .bmp .br .bz2 .cab .ckpt .class .db .dll .dmg
    .doc .docx .dylib .ear .eot .epub .exe .feather .flac .flv .gif .gz .h5 .heic .heif .ico .icns .iso .jar
    .jpeg .jpg .jp2 .lib .lz4 .lzma .m4a .m4v .mdb .mid .mkv .mo .mov .mp3 .mp4 .mpeg .mpg .msi .npy .npz .o
    .obj .odp .ods .odt .ogg .ogv .onnx .opus .orc .otf .parquet .pickle .pkl .png .ppt .pptx .psd .pt .pth
    .pyc .pyd .pyo .rar .rlib .rpm .safetensors .so .sqlite .sqlite3 .svg .swf .tar .tbz2 .tgz .tif .tiff
    .ttf .txz .wasm .wav .webm .webp .whl .wma .wmv .woff .woff2 .xls .xlsx .xz .zip .zst
"""
_TEXT = """
    .adoc .asciidoc .asm .astro .awk .bash .bat .bib .c .cc .cfg .clj .cljs .cmake .cmd .cpp .cs .css .csv
    .cu .cuh .cxx .d .dart .diff .dockerfile .el .elm .erl .ex .exs .f .f90 .fish .fs .fsx .go .gradle
    .graphql .groovy .h .hcl .hh .hpp .hrl .hs .hxx .ini .ipynb .java .jl .js .json .jsonc .jsonl .jsx .kt
    .kts .latex .less .lisp .log .lua .m .make .markdown .md .mdx .mjs .mk .ml .mli .mm .ndjson .nim .nix
    .org .pas .patch .php .pl .pm .po .pod .properties .proto .ps1 .pxd .py .pyi .pyx .r .rb .rdoc .rmd .rs
    .rst .rtf .s .sass .scala .scm .scss .sh .sol .sql .srt .sv .svelte .swift .tcl .tex .text .textile .tf
    .tfvars .toml .ts .tsv .tsx .txt .v .vb .vhdl .vim .vtt .vue .wat .wiki .xml .xsd .xsl .yaml .yml .zig
    .zsh
"""

#: Never a document: skipped without being opened.
BINARY_SUFFIXES = frozenset(_BINARY.split())
#: Text by its name: read as text although some bytes look odd.
TEXT_SUFFIXES = frozenset(_TEXT.split())
HTML_SUFFIXES = frozenset({".htm", ".html", ".xhtml"})

#: Longer marks first: the UTF-16 mark is the beginning of the UTF-32 one.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_CONTROL = bytes(sorted(set(range(32)) - set(b"\t\n\v\f\r\b\x1b")))


def suffix_of(name: str) -> str:
    """The last suffix in lower case, "" without one; "Makefile" and ".env" have none."""
    stem, dot, suffix = name.rpartition(".")
    return dot + suffix.lower() if stem else ""


def find_mark(content: bytes) -> tuple[bytes, str] | None:
    """The byte order mark at the start and the encoding it stands for."""
    return next(((mark, encoding) for mark, encoding in BYTE_ORDER_MARKS if content.startswith(mark)), None)


def looks_binary(content: bytes, share: float = 0.02) -> bool:
    """True when more than `share` of the bytes are controls that text has no use for; one is allowed."""
    if find_mark(content) or content.startswith(b"%PDF-"):
        return content.startswith(b"%PDF-")
    num_control = len(content) - len(content.translate(None, _CONTROL))
    return num_control > max(1, share * len(content))
