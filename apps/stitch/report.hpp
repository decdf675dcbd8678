// A run of the program: what it makes or stitches, and the report of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "methods.hpp"
#include "request.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

// Made tiles: a smooth scene, seen through a grid of tiles that are not quite where they should be,
// with the noise of a camera.

struct make_report {
    std::uint64_t bytes = 0;
    std::uint32_t image_width = 0, image_height = 0, threads = 0;
    double seconds = 0;
};

// Places column by column, so that the left part of an image has the first part of the file.
// -EINVAL and a message if the image would be too large.
status place_tiles(const make_request& m, tile_set& out);

status make_tiles(const request& asked, make_report& report);

// One run: what was asked, what each method did, how long each part took.

struct method_run {
    std::string name;
    std::vector<phases> runs;

    [[nodiscard]] double median(double (*what)(const phases&)) const;
    [[nodiscard]] double median_total() const;
};

struct session {
    request asked;
    stitch_job job;
    std::unique_ptr<runtime> rt;  // null: only the method cpu
    std::unique_ptr<part_maker> left_maker;
    image_file image;  // the last method's
    std::vector<method_run> methods;
    std::vector<std::string>
        notes;  // said with the summary: what the runtime said, what was left out
    std::optional<balance> measured;  // with --split auto
    std::uint64_t hash = 0;           // of the image
    double start_seconds = 0;         // runtime
    double layout_seconds = 0;        // which tile owns which pixel
};

// Makes the runtime; defined beside the program's main function, the only place that knows the
// command line's types.
status make_runtime(session& s, options settings);

// Finds everything that can be wrong with what was named, before any work is done.
status open_files(session& s);

// All methods, one after the other; their images are compared. The image is in its file, under a
// passing name.
status stitch(session& s);

// What a run or a made file looks like to people and to programs.

std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& r);
void say_summary(const session& s);
void say_summary(const request& asked, const make_report& r);

}  // namespace penstock::stitch
