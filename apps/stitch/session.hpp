// The commands of penstock-stitch: making the image, and making tiles to make it from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/program.hpp"
#include "methods.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

struct method_run {
    std::string name;
    std::vector<phases> runs;  // of each repetition
};

// What was asked for, what each method did, how long each part took.
struct run_session final : apps::command {
    run_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    // What was asked for, beside what the job has.
    std::string tiles, out, merge = "bytes";
    std::vector<std::string> methods = {
        "penstock"};  // each once; or "all", of those to be used here
    std::uint32_t repetitions = 1;
    std::optional<double> split;  // nothing: by measuring

    stitch_job job;
    std::unique_ptr<runtime> rt;  // null: only the method cpu
    std::unique_ptr<part_maker> left_maker;
    image_file image;  // the last method's
    std::vector<method_run> runs;
    std::vector<std::string>
        notes;  // said with the summary: what the runtime said, what was left out
    std::optional<balance> measured;  // with --split auto
    std::uint64_t hash = 0;           // of the image
    double start_seconds = 0;         // runtime
    double layout_seconds = 0;        // which tile owns which pixel
};

// Made tiles: a smooth scene, seen through a grid of tiles that are not quite where they should be,
// with the noise of a camera.
struct make_session final : apps::command {
    make_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    std::string out;
    std::uint32_t rows = 0, columns = 0;
    std::uint32_t tile_width = 0, tile_height = 0;
    std::uint32_t overlap_percent = 10, jitter = 0;
    std::uint64_t seed = 1;

    tile_set tiles;
    std::uint32_t threads = 0;
    double seconds = 0;
};

}  // namespace penstock::stitch
