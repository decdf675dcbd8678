// Prints the layout of a table as one JSON object, for comparisons with other readers:
// print_layout PATH [TENSOR]. Exit status 1 and a message if there is none.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "penstock/table_layout.hpp"

int main(int count, char** arguments) {
    if (count < 2 || count > 3) {
        std::fprintf(stderr, "usage: print_layout PATH [TENSOR]\n");
        return 2;
    }
    penstock::table_layout rows;
    const penstock::status s =
        penstock::describe(arguments[1], count == 3 ? arguments[2] : "", rows);
    if (!s) {
        std::fprintf(stderr, "%s\n", s.message.c_str());
        return 1;
    }
    nlohmann::json pieces = nlohmann::json::array();
    for (const penstock::table_piece& piece : rows.pieces)
        pieces.push_back(
            {{"path", piece.path}, {"first_byte", piece.first_byte}, {"rows", piece.rows}});
    const nlohmann::json out = {{"row_bytes", rows.row_bytes},
                                {"stride_bytes", rows.stride_bytes},
                                {"dtype", rows.dtype},
                                {"row_shape", rows.row_shape},
                                {"pieces", pieces}};
    std::printf("%s\n", out.dump().c_str());
    return 0;
}
