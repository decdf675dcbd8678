// The commands of penstock-matrix: to multiply, and to make operands; each for a vector and for a
// matrix. Their members are what was asked for, the state of a run, and its report.
#pragma once

#include <cstdint>
#include <string>

#include "check.hpp"
#include "common/files.hpp"
#include "common/program.hpp"
#include "methods.hpp"

namespace penstock::matrix {

class product_command : public apps::command {
public:
    product_command(const apps::command_text& text, product_shape shape) : command(text) {
        job.shape = shape;
    }
    void add_options(apps::option_list& add) override;
    status check() override;
    status open() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

private:
    [[nodiscard]] bool is_vector() const { return job.shape == product_shape::vector; }
    status open_operands();

    std::string a_path, b_path, out;
    std::string method = "penstock";
    bool wants_check = false;
    matrix_job job;
    apps::output_file result;
    method_report report;
    check_report checked;
};

// Two files of random numbers, from a seed. Numbers even from -1 to 1; docs/apps/matrix.md says
// which. All threads make and write pieces of their own.
class make_command : public apps::command {
public:
    make_command(const apps::command_text& text, product_shape shape)
        : command(text), shape_(shape) {}
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

private:
    product_shape shape_;
    matrix_sizes size;
    std::string a_path, b_path;
    std::uint64_t seed = 1;
    std::uint64_t bytes = 0;  // of both files
    double seconds = 0;
    std::uint32_t threads = 0;
};

}  // namespace penstock::matrix
