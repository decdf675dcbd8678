// The two commands of penstock-collage: `index` makes a library, `make` a collage from it.
#pragma once

#include <string>

#include "common/program.hpp"
#include "index_library.hpp"
#include "methods.hpp"

namespace penstock::collage {

struct index_session final : apps::command {
    index_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    index_request asked;
    index_report report;
};

struct make_session final : apps::command {
    make_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status open() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    // What was asked for.
    std::string input, library_path, out;
    std::string method = "penstock";

    library from;
    picture in;
    apps::output_file file;
    method_report report;
    double library_seconds = 0;  // opening and checking it
    double decode_seconds = 0, encode_seconds = 0;
};

}  // namespace penstock::collage
