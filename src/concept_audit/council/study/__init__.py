"""The web page on which people compare two explanations of one prediction.

CBX-Bench, section 3.1: three people see the image, its class and two anonymous explanations and
answer A, B, equally good or equally bad. `items` reads what is compared, `assignment` decides who
sees what, `store` keeps the answers, `app` serves the pages, `export` writes the labels that
`concept_audit.council.alignment` reads.
"""
