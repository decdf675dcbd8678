// penstock-matvec: multiplies a matrix in a file with a vector. See request.cpp for what it
// promises.
#include "common/product_main.hpp"
#include "report.hpp"

int main(int argc, char** argv) {
    using namespace penstock::matvec;
    return penstock::apps::run_program<session, make_report, request>("penstock-matvec", argc,
                                                                      argv);
}
