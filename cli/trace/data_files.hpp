// Makes the files of a trace, with the contents that its header says.
#pragma once

#include <memory>
#include <vector>

#include "common/output_file.hpp"
#include "trace.hpp"

namespace penstock::trace {

class data_files {
public:
    // By all threads. The header has contents.
    status make(const trace_header& header, std::uint32_t threads, bool quiet);
    // Puts the files in their places. Without it, nothing is left behind.
    status commit();

private:
    std::vector<std::unique_ptr<apps::output_file>> files_;
};

}  // namespace penstock::trace
