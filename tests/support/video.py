"""A real video, made without an encoder: H.264 whose macroblocks are plain samples, in an MP4 file.

Every frame is a key frame of one gray that identifies its number, so that a test can tell the position of a player.
"""

import struct

#: Size of the picture in macroblocks of 16 × 16 pixels.
BLOCKS_WIDE, BLOCKS_HIGH = 8, 6
WIDTH, HEIGHT = 16 * BLOCKS_WIDE, 16 * BLOCKS_HIGH
FRAMES_PER_SECOND = 25
#: Distance of the greys, so that rounding in the player does not mix them up; they repeat after this many frames.
GREY_FIRST, GREY_STEP, GREYS = 24, 4, 50
#: Ticks of the file's clock per second.
TIMESCALE = 1000

#: ITU-T H.264 table 7-13: the type I_PCM, as an Exp-Golomb number, and zeroes up to the next byte (7.3.5).
PLAIN_BLOCK = "000011010" + "0000000"


def gray(number):
    """Returns the luma of a frame."""
    return GREY_FIRST + GREY_STEP * (number % GREYS)


def grey_at(seconds):
    """Returns the luma of the frame at this time."""
    return gray(int(seconds * FRAMES_PER_SECOND))


def video(seconds):
    """Returns an MP4 file, with its tables first, as for the web."""
    frames = [frame(number) for number in range(seconds * FRAMES_PER_SECOND)]
    data = b"".join(frames)
    start = box(b"ftyp", b"isom", number32(512), b"isomiso2avc1mp41")
    # The tables contain file offsets, and their own length does not depend on these.
    before = len(start) + len(tables(frames, 0)) + 8
    return start + tables(frames, before) + box(b"mdat", data)


# H.264.


def golomb(number):
    """Encodes an unsigned Exp-Golomb number (ITU-T H.264 section 9.1)."""
    digits = format(number + 1, "b")
    return "0" * (len(digits) - 1) + digits


def packed(bits):
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def ended(bits):
    """Appends the trailing bits of section 7.3.2.11."""
    bits += "1"
    return packed(bits + "0" * (-len(bits) % 8))


def sequence_parameters():
    """Section 7.3.2.1: baseline profile, level 3; output order is decoding order; one reference frame; frames only."""
    bits = golomb(0) + golomb(0) + golomb(2) + golomb(1) + "0" + golomb(BLOCKS_WIDE - 1) + golomb(BLOCKS_HIGH - 1) + "1000"
    return bytes([0x67, 66, 0xC0, 30]) + ended(bits)


def picture_parameters():
    """Section 7.3.2.2: variable length codes, one slice group, no weighted prediction, initial quantizer."""
    return b"\x68" + ended(golomb(0) * 2 + "00" + golomb(0) * 3 + "000" + golomb(0) * 3 + "000")


def frame(number):
    """Encodes a slice with a whole picture (section 7.3.3), with its length before it."""
    # First block, I slices only, parameters 0, frame number 0, picture ids alternately 0 and 1, no marks, initial quantizer.
    header = golomb(0) + golomb(7) + golomb(0) + "0000" + golomb(number % 2) + "00" + golomb(0)
    first = header + PLAIN_BLOCK[:9]
    first = packed(first + "0" * (-len(first) % 8))
    samples = bytes([gray(number)]) * 256 + b"\x80" * 128
    blocks = (packed(PLAIN_BLOCK) + samples) * (BLOCKS_WIDE * BLOCKS_HIGH - 1)
    unit = b"\x65" + first + samples + blocks + b"\x80"
    return number32(len(unit)) + unit


# MP4 (ISO/IEC 14496-12 and 14496-15).


def number32(number):
    return struct.pack(">I", number)


def box(kind, *content):
    body = b"".join(content)
    return number32(len(body) + 8) + kind + body


def full_box(kind, flags, *content):
    return box(kind, number32(flags), *content)


def tables(frames, data_offset):
    """Returns the box `moov` of a file whose frames begin at this offset."""
    duration = len(frames) * TIMESCALE // FRAMES_PER_SECOND
    unity = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    movie = full_box(
        b"mvhd",
        0,
        struct.pack(">IIIIIHH8x", 0, 0, TIMESCALE, duration, 0x10000, 0x100, 0),
        unity,
        bytes(24),
        number32(2),
    )
    track = full_box(
        b"tkhd",
        3,
        struct.pack(">IIIII8xHHHH", 0, 0, 1, 0, duration, 0, 0, 0, 0),
        unity,
        struct.pack(">II", WIDTH << 16, HEIGHT << 16),
    )
    media = full_box(b"mdhd", 0, struct.pack(">IIIIHH", 0, 0, TIMESCALE, duration, 0x55C4, 0))
    handler = full_box(b"hdlr", 0, bytes(4), b"vide", bytes(12), b"video\0")
    place = box(b"dinf", full_box(b"dref", 0, number32(1), full_box(b"url ", 1)))
    information = box(b"minf", full_box(b"vmhd", 1, bytes(8)), place, samples_table(frames, data_offset))
    return box(b"moov", movie, box(b"trak", track, box(b"mdia", media, handler, information)))


def samples_table(frames, data_offset):
    sequence, picture = sequence_parameters(), picture_parameters()
    configuration = box(
        b"avcC",
        bytes([1]) + sequence[1:4] + bytes([0xFF, 0xE1]),
        struct.pack(">H", len(sequence)) + sequence,
        bytes([1]) + struct.pack(">H", len(picture)) + picture,
    )
    entry = box(
        b"avc1",
        struct.pack(">6xH16xHHII4xH32sHh", 1, WIDTH, HEIGHT, 0x480000, 0x480000, 1, b"", 24, -1),
        configuration,
    )
    step = TIMESCALE // FRAMES_PER_SECOND
    return box(
        b"stbl",
        full_box(b"stsd", 0, number32(1), entry),
        full_box(b"stts", 0, struct.pack(">III", 1, len(frames), step)),
        # One chunk contains all frames.
        full_box(b"stsc", 0, struct.pack(">IIII", 1, 1, len(frames), 1)),
        full_box(b"stsz", 0, struct.pack(">II", 0, len(frames)), *(number32(len(one)) for one in frames)),
        full_box(b"stco", 0, struct.pack(">II", 1, data_offset)),
    )
