// One run: what was asked, what each method did, how long each part took.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "balance.hpp"
#include "methods.hpp"
#include "request.hpp"

namespace penstock::stitch {

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

}  // namespace penstock::stitch
