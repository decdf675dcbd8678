// The commands of penstock-match: a search, and making files to search in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "common/program.hpp"
#include "methods.hpp"

namespace penstock::match {

struct search_session final : apps::command {
    search_session();
    void add_options(apps::option_list& add) override;
    status open() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    // What was asked for, beside what the job has.
    std::string queries, out, method = "penstock";  // out: empty for standard output
    std::vector<std::string> databases;
    bool compare = false;

    match_job job;
    apps::output_file lines;
    std::vector<match_report> runs;  // the last one is the one whose lines are printed
    double check_seconds = 0;        // opening and checking the files
    double output_seconds = 0;
};

// Where an image of all databases is.
struct image_place {
    std::size_t database;
    std::uint64_t image;
};
image_place place_of_image(const match_job& job, std::uint64_t number);

// Query, database, image, distance.
status write_lines(const search_session& s, apps::output_file& to);

// Files of random images with matches that are known, from a seed.
struct make_session final : apps::command {
    make_session();
    void add_options(apps::option_list& add) override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    // What was asked for.
    std::string folder;
    std::uint64_t queries = 2016;
    std::uint64_t images = 25000;  // of each database
    std::uint32_t databases = 3;
    std::uint32_t width = 64, height = 64, channels = 1;
    std::uint64_t seed = 20140224;
    double matches = 0.5;  // fraction of the queries that are put into a database
    double noise = 0.01;   // most that a number of such an image differs

    std::vector<std::string> files;
    std::uint64_t bytes = 0;
    std::uint64_t planted = 0;  // queries that have a match
    double threshold = 0;       // that finds them all and, for all but tiny images, nothing else
    double seconds = 0;
    std::uint32_t threads = 0;
};

}  // namespace penstock::match
